# fovea_add_cuda_sources(FAMILY portable|sm80|sm90 FILES <file>...)
#
# Adds CUDA sources to the library. A family is what its instructions need:
#   portable  every GPU from sm_75: code for each wanted generation, and PTX for all others
#   sm80      Ampere instructions: code for each wanted generation from sm_80, and PTX
#   sm90      Hopper only (wgmma, TMA): sm_90a
# FOVEA_CUDA_ARCHS says which generations are wanted. A family that no wanted generation can run is
# left out. Without CUDA the call does nothing. The library's host sources see FOVEA_CUDA_PORTABLE,
# FOVEA_CUDA_SM80 and FOVEA_CUDA_SM90 as 1 or 0; FOVEA_CUDA_EMBEDDED lists what is in the binary.

set(FOVEA_CUDA_EMBEDDED "")
if(NOT FOVEA_HAVE_CUDA)
  target_compile_definitions(fovea_objects PRIVATE FOVEA_CUDA_PORTABLE=0 FOVEA_CUDA_SM80=0 FOVEA_CUDA_SM90=0)
  function(fovea_add_cuda_sources)
  endfunction()
  return()
endif()

set(wanted ${FOVEA_CUDA_ARCHS})
if(wanted STREQUAL "all")
  set(wanted sm80 sm90)
elseif(wanted STREQUAL "auto")
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
                  OUTPUT_VARIABLE capabilities ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT capabilities)
    message(FATAL_ERROR "FOVEA_CUDA_ARCHS=auto, but nvidia-smi lists no GPU; use all, sm80 or sm90")
  endif()
  set(wanted "")
  if(capabilities MATCHES "(^|\n)9\\.")
    list(APPEND wanted sm90)
  endif()
  if(capabilities MATCHES "(^|\n)8\\." OR NOT wanted)
    list(APPEND wanted sm80)
  endif()
endif()
foreach(arch IN LISTS wanted)
  if(NOT arch MATCHES "^sm(80|90)$")
    message(FATAL_ERROR "FOVEA_CUDA_ARCHS is '${FOVEA_CUDA_ARCHS}'; accepted: all, auto, or a list of sm80;sm90")
  endif()
endforeach()

set(fovea_archs_portable "")
set(fovea_archs_sm80 "")
set(fovea_archs_sm90 "")
if(sm80 IN_LIST wanted)
  set(fovea_archs_portable 75-virtual 80-real)
  set(fovea_archs_sm80 80)
  list(APPEND FOVEA_CUDA_EMBEDDED sm_80)
endif()
if(sm90 IN_LIST wanted)
  list(APPEND fovea_archs_portable 90-real)
  list(APPEND fovea_archs_sm80 90-real)
  set(fovea_archs_sm90 90a-real)
  list(APPEND FOVEA_CUDA_EMBEDDED sm_90a)
endif()
list(JOIN FOVEA_CUDA_EMBEDDED ", " embedded)
message(STATUS "CUDA architectures: ${embedded}")
foreach(family IN ITEMS portable sm80 sm90)
  string(TOUPPER "FOVEA_CUDA_${family}" macro)
  list(LENGTH fovea_archs_${family} count)
  target_compile_definitions(fovea_objects PRIVATE ${macro}=$<BOOL:${count}>)
endforeach()

# CMake 3.25 does not know nvcc's C++20 flag.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()

function(fovea_add_cuda_sources)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "FAMILY" "FILES")
  if(NOT arg_FAMILY MATCHES "^(portable|sm80|sm90)$" OR NOT arg_FILES)
    message(FATAL_ERROR "fovea_add_cuda_sources(FAMILY portable|sm80|sm90 FILES <file>...)")
  endif()
  set(archs ${fovea_archs_${arg_FAMILY}})
  if(NOT archs)
    return()
  endif()
  set(objects fovea_cuda_${arg_FAMILY})
  if(NOT TARGET ${objects})
    add_library(${objects} OBJECT)
    set_target_properties(
      ${objects}
      PROPERTIES CUDA_ARCHITECTURES "${archs}"
                 CUDA_VISIBILITY_PRESET hidden
                 POSITION_INDEPENDENT_CODE ON)
    fovea_set_warnings(${objects})
    target_compile_options(${objects} PRIVATE --threads=${FOVEA_NVCC_THREADS})
    if(arg_FAMILY STREQUAL "sm90")
      target_compile_options(${objects} PRIVATE -Xptxas=--warn-on-spills)
      set_target_properties(${objects} PROPERTIES RULE_LAUNCH_COMPILE
                                                  "${PROJECT_SOURCE_DIR}/scripts/ptxas_gate.sh")
    endif()
    target_include_directories(${objects} PRIVATE "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}")
    target_link_libraries(${objects} PRIVATE CUDA::cudart_static)
    target_sources(fovea PRIVATE $<TARGET_OBJECTS:${objects}>)
    target_sources(fovea_internal PRIVATE $<TARGET_OBJECTS:${objects}>)
  endif()
  foreach(file IN LISTS arg_FILES)
    cmake_path(ABSOLUTE_PATH file)
    target_sources(${objects} PRIVATE "${file}")
  endforeach()
endfunction()

# The runtime is inside the library and finds the driver when it is first asked, so a CUDA build also
# loads on a machine without one. cuDNN and NCCL are loaded at run time.
fovea_link(CUDA::cudart_static)
