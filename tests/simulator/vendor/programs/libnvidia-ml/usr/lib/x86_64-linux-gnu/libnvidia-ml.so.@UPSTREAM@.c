/* soname: libnvidia-ml.so.1 */
/* Found where no GPUs are simulated; where they are, their library comes first in the loader's search path. */
enum { DRIVER_NOT_LOADED = 9 };

int nvmlInit(void)
{
    return DRIVER_NOT_LOADED;
}

int nvmlInit_v2(void)
{
    return DRIVER_NOT_LOADED;
}

int nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    return DRIVER_NOT_LOADED;
}

int nvmlShutdown(void)
{
    return DRIVER_NOT_LOADED;
}

const char *nvmlErrorString(int result)
{
    return result == DRIVER_NOT_LOADED ? "Driver Not Loaded" : "Unknown Error";
}
