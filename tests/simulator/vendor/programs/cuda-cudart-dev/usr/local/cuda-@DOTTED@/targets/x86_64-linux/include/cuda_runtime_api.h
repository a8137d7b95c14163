/* Test stand-in: what its library has. */
#ifndef CUDA_RUNTIME_API_H
#define CUDA_RUNTIME_API_H
#define CUDART_VERSION (@BRANCH@ * 1000 + @MINOR@ * 10)
#ifdef __cplusplus
extern "C" {
#endif
int cudaRuntimeGetVersion(int *version);
int cudaGetDeviceCount(int *count);
const char *cudaGetErrorString(int error);
#ifdef __cplusplus
}
#endif
#endif
