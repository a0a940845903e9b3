# fovea_add_isa_sources(ISA <name> [FLAGS <flag>...] FILES <file>...)
#
# Adds sources to the library that are compiled for one instruction set, e.g.
#   fovea_add_isa_sources(ISA avx2 FLAGS -mavx2 -mfma -mf16c FILES kernel_avx2.cpp)
# The flags come on top of the generic ones. avx* and amx* files are for x86-64, neon* and sve* files
# for 64-bit Arm; elsewhere they are compiled without the flags, so that they must still define what
# others call (by the compiler's macros: a null pointer), and the macro FOVEA_HAVE_ISA_<NAME> (upper
# case) is 0 instead of 1.
# Such a file must define no symbol that another file may share: an inline function compiled for
# AVX2 can be the copy that the linker keeps for everyone. The test isa_symbols checks it.

set_property(GLOBAL PROPERTY FOVEA_ISA_SOURCES "")

function(fovea_add_isa_sources)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "ISA" "FLAGS;FILES")
  if(NOT arg_ISA OR NOT arg_FILES OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "fovea_add_isa_sources(ISA <name> [FLAGS <flag>...] FILES <file>...)")
  endif()
  string(TOUPPER "${arg_ISA}" macro)
  set(supported ON)
  if(arg_ISA MATCHES "^(avx|amx)" AND NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
    set(supported OFF)
  elseif(arg_ISA MATCHES "^(neon|sve)" AND NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
    set(supported OFF)
  endif()
  get_property(known GLOBAL PROPERTY FOVEA_ISA_${macro})
  if(NOT known)
    set_property(GLOBAL PROPERTY FOVEA_ISA_${macro} ON)
    target_compile_definitions(fovea_objects PRIVATE FOVEA_HAVE_ISA_${macro}=$<BOOL:${supported}>)
    target_compile_definitions(fovea_internal INTERFACE FOVEA_HAVE_ISA_${macro}=$<BOOL:${supported}>)
  endif()
  if(NOT supported)
    set(arg_FLAGS "")
  endif()
  foreach(file IN LISTS arg_FILES)
    cmake_path(ABSOLUTE_PATH file)
    target_sources(fovea_objects PRIVATE "${file}")
    set_property(SOURCE "${file}" TARGET_DIRECTORY fovea_objects APPEND PROPERTY COMPILE_OPTIONS ${arg_FLAGS})
    if(arg_FLAGS)
      set_property(GLOBAL APPEND PROPERTY FOVEA_ISA_SOURCES "${arg_ISA}=${file}")
    endif()
  endforeach()
endfunction()

# fovea_add_reference_sources(FILE...): sources whose arithmetic must be exactly what is written.
function(fovea_add_reference_sources)
  foreach(file IN LISTS ARGN)
    cmake_path(ABSOLUTE_PATH file)
    target_sources(fovea_objects PRIVATE "${file}")
    set_property(SOURCE "${file}" TARGET_DIRECTORY fovea_objects APPEND PROPERTY COMPILE_OPTIONS -ffp-contract=off)
  endforeach()
endfunction()
