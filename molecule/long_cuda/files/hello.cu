// Prints what CUDA and NCCL say of themselves, and what comes of starting a kernel on a machine without a driver.
#include <cstdio>
#include <cuda_runtime.h>
#include <nccl.h>

__global__ void add(float *values, float summand) { values[threadIdx.x] += summand; }

int main() {
  int nccl = 0;
  ncclResult_t status = ncclGetVersion(&nccl);
  add<<<1, 32>>>(nullptr, 1.0f);
  std::printf("%d %d %d %s\n", CUDART_VERSION, status, nccl, cudaGetErrorName(cudaGetLastError()));
}
