# Finds the headers that the cuDNN backend is compiled with: cuDNN's own and those of its frontend.
# The library is loaded at run time and not looked for. Sets CUDNN_FOUND, CUDNN_VERSION,
# CUDNN_FRONTEND_VERSION, CUDNN_INCLUDE_DIR and CUDNN_FRONTEND_INCLUDE_DIR, and makes CUDNN::headers.

# Where pip puts them: site-packages/include and site-packages/nvidia/cudnn/include.
execute_process(COMMAND python3 -c "import sysconfig; print(sysconfig.get_path('platlib'))"
                OUTPUT_VARIABLE site_packages ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
find_path(CUDNN_INCLUDE_DIR cudnn_version.h HINTS ${CUDNN_ROOT} $ENV{CUDNN_ROOT}
          PATHS ${CUDAToolkit_INCLUDE_DIRS} "${site_packages}/nvidia/cudnn" PATH_SUFFIXES include)
find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h HINTS ${CUDNN_FRONTEND_ROOT} $ENV{CUDNN_FRONTEND_ROOT}
          PATHS "${site_packages}" PATH_SUFFIXES include)
mark_as_advanced(CUDNN_INCLUDE_DIR CUDNN_FRONTEND_INCLUDE_DIR)

# cudnn_read_version(FILE PREFIX THIRD OUTPUT): "major.minor.third" of the file's #defines.
function(cudnn_read_version file prefix third output)
  file(STRINGS "${file}" lines REGEX "#define ${prefix}_(MAJOR|MINOR|${third})[A-Z_]* ")
  string(REGEX MATCHALL "[0-9]+" numbers "${lines}")
  list(JOIN numbers "." version)
  set(${output} "${version}" PARENT_SCOPE)
endfunction()
if(CUDNN_INCLUDE_DIR)
  cudnn_read_version("${CUDNN_INCLUDE_DIR}/cudnn_version.h" CUDNN PATCHLEVEL CUDNN_VERSION)
endif()
if(CUDNN_FRONTEND_INCLUDE_DIR)
  cudnn_read_version("${CUDNN_FRONTEND_INCLUDE_DIR}/cudnn_frontend_version.h" CUDNN_FRONTEND PATCH
                     CUDNN_FRONTEND_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CUDNN REQUIRED_VARS CUDNN_INCLUDE_DIR CUDNN_FRONTEND_INCLUDE_DIR
                                  VERSION_VAR CUDNN_VERSION)

if(CUDNN_FOUND AND NOT TARGET CUDNN::headers)
  add_library(CUDNN::headers INTERFACE IMPORTED)
  target_include_directories(CUDNN::headers INTERFACE "${CUDNN_INCLUDE_DIR}" "${CUDNN_FRONTEND_INCLUDE_DIR}")
endif()
