/* soname: libnvidia-cfg.so.1 */
/* Found where no GPUs are simulated; where they are, their library comes first in the loader's search path. */
int nvCfgGetDevices(int *count, void **devices)
{
    if (count)
        *count = 0;
    if (devices)
        *devices = 0;
    return 0;
}
