/* A kernel module that does nothing but bear the driver's name, version and licence. */
#include <linux/module.h>

MODULE_LICENSE("NVIDIA");
MODULE_VERSION("@UPSTREAM@");
MODULE_DESCRIPTION("Test stand-in");
