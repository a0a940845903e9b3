// The functions of libcudnn that its frontend calls, each passed on to the library that was loaded:
// nothing links libcudnn, and a program runs without it. Hidden in the library's symbol table.
#include <cudnn.h>
#include <dlfcn.h>
#include <nvrtc.h>

#include "src/cuda_device/cudnn_library.hpp"

namespace {

// Null when libcudnn is not loaded or lacks the function.
template <class Function>
Function* find(Function*, const char* name) {
  const auto library = fovea::cuda::load_cudnn();
  return library ? reinterpret_cast<Function*>(dlsym((*library)->handle, name)) : nullptr;
}

}  // namespace

// Looked up once; `...` are the arguments.
#define FOVEA_PASS_ON(function, absent, ...)            \
  static const auto found = find(&function, #function); \
  return found == nullptr ? (absent) : found(__VA_ARGS__)
#define FOVEA_PASS_ON_STATUS(function, ...) \
  FOVEA_PASS_ON(function, CUDNN_STATUS_NOT_INITIALIZED, __VA_ARGS__)

extern "C" {

size_t cudnnGetVersion() { FOVEA_PASS_ON(cudnnGetVersion, 0); }

const char* cudnnGetErrorString(cudnnStatus_t status) {
  FOVEA_PASS_ON(cudnnGetErrorString, "libcudnn is not loaded", status);
}

void cudnnGetLastErrorString(char* message, size_t size) {
  static const auto found = find(&cudnnGetLastErrorString, "cudnnGetLastErrorString");
  if (found != nullptr)
    found(message, size);
  else if (size > 0)
    message[0] = '\0';
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) { FOVEA_PASS_ON_STATUS(cudnnCreate, handle); }
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) { FOVEA_PASS_ON_STATUS(cudnnDestroy, handle); }

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  FOVEA_PASS_ON_STATUS(cudnnSetStream, handle, stream);
}
cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* stream) {
  FOVEA_PASS_ON_STATUS(cudnnGetStream, handle, stream);
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  FOVEA_PASS_ON_STATUS(cudnnBackendCreateDescriptor, type, descriptor);
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  FOVEA_PASS_ON_STATUS(cudnnBackendDestroyDescriptor, descriptor);
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  FOVEA_PASS_ON_STATUS(cudnnBackendFinalize, descriptor);
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void* values) {
  FOVEA_PASS_ON_STATUS(cudnnBackendSetAttribute, descriptor, name, type, count, values);
}
cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t requested,
                                       int64_t* count, void* values) {
  FOVEA_PASS_ON_STATUS(cudnnBackendGetAttribute, descriptor, name, type, requested, count, values);
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t variant_pack) {
  FOVEA_PASS_ON_STATUS(cudnnBackendExecute, handle, plan, variant_pack);
}
cudnnStatus_t cudnnBackendPopulateCudaGraph(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                            cudnnBackendDescriptor_t variant_pack,
                                            cudaGraph_t graph) {
  FOVEA_PASS_ON_STATUS(cudnnBackendPopulateCudaGraph, handle, plan, variant_pack, graph);
}
cudnnStatus_t cudnnBackendUpdateCudaGraph(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                          cudnnBackendDescriptor_t variant_pack,
                                          cudaGraph_t graph) {
  FOVEA_PASS_ON_STATUS(cudnnBackendUpdateCudaGraph, handle, plan, variant_pack, graph);
}

// Reached only from the frontend's convolution code, which no graph of ours has.
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* descriptor) {
  FOVEA_PASS_ON_STATUS(cudnnCreateFilterDescriptor, descriptor);
}
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t descriptor) {
  FOVEA_PASS_ON_STATUS(cudnnDestroyFilterDescriptor, descriptor);
}
cudnnStatus_t cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t descriptor, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int rank, const int sizes[]) {
  FOVEA_PASS_ON_STATUS(cudnnSetFilterNdDescriptor, descriptor, type, format, rank, sizes);
}
cudnnStatus_t cudnnReorderFilterAndBias(cudnnHandle_t handle, cudnnFilterDescriptor_t filter,
                                        cudnnReorderType_t type, const void* data, void* reordered,
                                        int reorder_bias, const void* bias, void* reordered_bias) {
  FOVEA_PASS_ON_STATUS(cudnnReorderFilterAndBias, handle, filter, type, data, reordered,
                       reorder_bias, bias, reordered_bias);
}

// NVRTC, with which the frontend compiles kernels of its own. Graphs of ours run cuDNN's, so
// nothing stands behind these.
nvrtcResult nvrtcCreateProgram(nvrtcProgram*, const char*, const char*, int, const char* const*,
                               const char* const*) {
  return NVRTC_ERROR_INTERNAL_ERROR;
}
nvrtcResult nvrtcDestroyProgram(nvrtcProgram*) { return NVRTC_ERROR_INTERNAL_ERROR; }
nvrtcResult nvrtcCompileProgram(nvrtcProgram, int, const char* const*) {
  return NVRTC_ERROR_INTERNAL_ERROR;
}
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram, size_t*) { return NVRTC_ERROR_INTERNAL_ERROR; }
nvrtcResult nvrtcGetCUBIN(nvrtcProgram, char*) { return NVRTC_ERROR_INTERNAL_ERROR; }
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram, size_t*) { return NVRTC_ERROR_INTERNAL_ERROR; }
nvrtcResult nvrtcGetProgramLog(nvrtcProgram, char*) { return NVRTC_ERROR_INTERNAL_ERROR; }

}  // extern "C"
