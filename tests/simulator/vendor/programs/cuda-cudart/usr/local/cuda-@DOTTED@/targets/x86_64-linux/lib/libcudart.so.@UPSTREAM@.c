/* soname: libcudart.so.@BRANCH@ */
/* The runtime on a machine without a GPU. */
enum { SUCCESS = 0, INVALID_VALUE = 1, NO_DEVICE = 100 };

int cudaRuntimeGetVersion(int *version)
{
    if (!version)
        return INVALID_VALUE;
    *version = @BRANCH@ * 1000 + @MINOR@ * 10;
    return SUCCESS;
}

int cudaGetDeviceCount(int *count)
{
    if (!count)
        return INVALID_VALUE;
    *count = 0;
    return NO_DEVICE;
}

const char *cudaGetErrorString(int error)
{
    return error == SUCCESS ? "no error" : error == NO_DEVICE ? "no CUDA-capable device is detected" : "invalid argument";
}
