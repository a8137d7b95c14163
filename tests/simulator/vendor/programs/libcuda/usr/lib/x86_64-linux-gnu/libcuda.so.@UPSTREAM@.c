/* soname: libcuda.so.1 */
/* A driver without a GPU, which is what a program that computes finds on a test host. */
enum { SUCCESS = 0, INVALID_VALUE = 1, NO_DEVICE = 100 };

int cuInit(unsigned flags)
{
    return flags ? INVALID_VALUE : NO_DEVICE;
}

int cuDriverGetVersion(int *version)
{
    if (!version)
        return INVALID_VALUE;
    *version = @BRANCH@ >= 595 ? 13020 : @BRANCH@ >= 590 ? 13010 : 13000;
    return SUCCESS;
}
