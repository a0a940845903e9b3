# Compiles what this build is into the library; src/core/build_info.hpp reads it.

set(FOVEA_BUILD_CUDA "")
set(FOVEA_BUILD_CUDNN "")
set(FOVEA_BUILD_NCCL "")
set(FOVEA_BUILD_MPI "")
if(FOVEA_HAVE_CUDA)
  set(FOVEA_BUILD_CUDA "${CUDAToolkit_VERSION}")
endif()
if(FOVEA_HAVE_CUDNN)
  set(FOVEA_BUILD_CUDNN "${CUDNN_VERSION}")
endif()
if(FOVEA_HAVE_NCCL)
  set(FOVEA_BUILD_NCCL "${NCCL_VERSION}")
endif()
if(FOVEA_HAVE_MPI)
  set(FOVEA_BUILD_MPI "${MPI_C_VERSION}")
endif()
list(JOIN FOVEA_CUDA_EMBEDDED "+" FOVEA_BUILD_CUDA_EMBEDDED)

configure_file("${PROJECT_SOURCE_DIR}/cmake/build_info.cpp.in"
               "${PROJECT_BINARY_DIR}/generated/build_info.cpp" @ONLY)
target_sources(fovea_objects PRIVATE "${PROJECT_BINARY_DIR}/generated/build_info.cpp")
