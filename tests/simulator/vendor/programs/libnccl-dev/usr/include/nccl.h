/* Test stand-in: what its library has. */
#ifndef NCCL_H_
#define NCCL_H_
#define NCCL_VERSION_TEXT "@UPSTREAM@"
#ifdef __cplusplus
extern "C" {
#endif
typedef int ncclResult_t;
ncclResult_t ncclGetVersion(int *version);
const char *ncclGetErrorString(ncclResult_t result);
#ifdef __cplusplus
}
#endif
#endif
