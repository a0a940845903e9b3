# Every switch of the build. FOVEA_BUILD_* are on when Fovea is the top-level project.

option(BUILD_SHARED_LIBS "Build the fovea target as a shared library" ${PROJECT_IS_TOP_LEVEL})
option(FOVEA_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(FOVEA_BUILD_BENCH "Build the micro benchmarks" ${PROJECT_IS_TOP_LEVEL})
option(FOVEA_BUILD_TOOLS "Build the command line program" ${PROJECT_IS_TOP_LEVEL})
option(FOVEA_BUILD_PYTHON "Install the Python module and register its tests" ${PROJECT_IS_TOP_LEVEL})
option(FOVEA_INSTALL "Create install rules" ${PROJECT_IS_TOP_LEVEL})
option(FOVEA_WERROR "Treat compiler warnings as errors" OFF)

# AUTO uses a component when it is found, ON fails without it, OFF never looks.
foreach(component IN ITEMS CUDA CUDNN NCCL MPI)
  set(FOVEA_ENABLE_${component} AUTO CACHE STRING "Use ${component}: AUTO, ON or OFF")
  set_property(CACHE FOVEA_ENABLE_${component} PROPERTY STRINGS AUTO ON OFF)
  if(NOT FOVEA_ENABLE_${component} MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "FOVEA_ENABLE_${component} is '${FOVEA_ENABLE_${component}}'; "
                        "accepted: AUTO, ON, OFF")
  endif()
endforeach()

set(FOVEA_CUDA_ARCHS all CACHE STRING "GPU generations to build for: all, auto, or a list of sm80;sm90")
set(FOVEA_NVCC_THREADS 1 CACHE STRING "nvcc --threads for one compilation")

set(FOVEA_SANITIZE "" CACHE STRING "Sanitizers: empty, address (with undefined) or thread")
set_property(CACHE FOVEA_SANITIZE PROPERTY STRINGS "" address thread)

if(PROJECT_IS_TOP_LEVEL)
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
  endif()
  find_program(FOVEA_CCACHE ccache)
  mark_as_advanced(FOVEA_CCACHE)
  if(FOVEA_CCACHE)
    foreach(language IN ITEMS C CXX CUDA)
      if(NOT DEFINED CMAKE_${language}_COMPILER_LAUNCHER)
        set(CMAKE_${language}_COMPILER_LAUNCHER "${FOVEA_CCACHE}")
      endif()
    endforeach()
  endif()
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 99)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)

include(GNUInstallDirs)
