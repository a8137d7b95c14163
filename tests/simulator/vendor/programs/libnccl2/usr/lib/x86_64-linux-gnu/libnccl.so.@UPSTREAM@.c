/* soname: libnccl.so.2 */
/* Knows its version and nothing else. */
enum { SUCCESS = 0, UNHANDLED_CUDA_ERROR = 1, INVALID_ARGUMENT = 4 };

int ncclGetVersion(int *version)
{
    const char *text = "@UPSTREAM@";
    int parts[3] = {0, 0, 0};
    int part = 0;

    if (!version)
        return INVALID_ARGUMENT;
    for (; *text && part < 3; text++) {
        if (*text == '.')
            part++;
        else
            parts[part] = parts[part] * 10 + (*text - '0');
    }
    *version = parts[0] * 10000 + parts[1] * 100 + parts[2];
    return SUCCESS;
}

const char *ncclGetErrorString(int result)
{
    return result == SUCCESS ? "no error" : result == UNHANDLED_CUDA_ERROR ? "unhandled cuda error" : "invalid argument";
}
