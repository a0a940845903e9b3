# fovea_add_fuzzer(NAME <name> HARNESS <file.cpp> SOURCES <library file>...
#                  FAULT_FILE <library file> FAULT_FIND "<text>" FAULT_REPLACE "<text>"
#                  [MAX_LEN <bytes>])
#
# A libFuzzer program with AddressSanitizer and UndefinedBehaviorSanitizer, compiled by clang whatever
# compiler builds the rest, and two tests: fuzz_<name> runs it for some seconds and must find
# nothing; fuzz_<name>_planted runs the same harness on a copy of the sources in which FAULT_FIND is
# replaced by FAULT_REPLACE, and must find that fault. Seeds: tests/fuzz/corpus/<name>, one input per
# file; words: tests/fuzz/corpus/<name>.dict, if it exists. Library files are relative to the source
# root. Under another sanitizer, or without clang's fuzzer, there is nothing to build and the tests
# are skipped.

set(FOVEA_FUZZ_FLAGS -std=c++20 -O1 -g -fno-omit-frame-pointer -fno-sanitize-recover=all
                     -fsanitize=fuzzer,address,undefined)
find_program(FOVEA_FUZZ_CXX NAMES clang++-14 clang++ NO_CACHE)
set(FOVEA_FUZZ_MISSING "")
if(FOVEA_SANITIZE)
  set(FOVEA_FUZZ_MISSING "fuzzers run in builds without another sanitizer")
elseif(NOT FOVEA_FUZZ_CXX)
  set(FOVEA_FUZZ_MISSING "clang++ was not found; on Debian: apt-get install clang-14")
else()
  file(WRITE "${PROJECT_BINARY_DIR}/fuzz_probe.cpp"
       "#include <cstddef>\n#include <cstdint>\n"
       "extern \"C\" int LLVMFuzzerTestOneInput(const uint8_t*, size_t) { return 0; }\n")
  execute_process(
    COMMAND "${FOVEA_FUZZ_CXX}" ${FOVEA_FUZZ_FLAGS} fuzz_probe.cpp -o fuzz_probe
    WORKING_DIRECTORY "${PROJECT_BINARY_DIR}"
    RESULT_VARIABLE failed
    OUTPUT_QUIET ERROR_QUIET)
  if(failed)
    set(FOVEA_FUZZ_MISSING "${FOVEA_FUZZ_CXX} cannot link libFuzzer; on Debian: apt-get install clang-14")
  endif()
endif()

# Compiles one file for the fuzzers; the same file is compiled once for all of them.
function(fovea_fuzz_object file object_variable)
  file(RELATIVE_PATH relative "${PROJECT_SOURCE_DIR}" "${file}")
  string(MAKE_C_IDENTIFIER "${relative}" identifier)
  set(object "${PROJECT_BINARY_DIR}/fuzz/${identifier}.o")
  set(${object_variable} "${object}" PARENT_SCOPE)
  get_property(known GLOBAL PROPERTY FOVEA_FUZZ_OBJECT_${identifier})
  if(known)
    return()
  endif()
  set_property(GLOBAL PROPERTY FOVEA_FUZZ_OBJECT_${identifier} TRUE)
  add_custom_command(
    OUTPUT "${object}"
    COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} "${FOVEA_FUZZ_CXX}" ${FOVEA_FUZZ_FLAGS}
            "-I${PROJECT_SOURCE_DIR}/include" "-I${PROJECT_SOURCE_DIR}" "-I${PROJECT_SOURCE_DIR}/src"
            -MD -MF "${object}.d" -c "${file}" -o "${object}"
    DEPENDS "${file}"
    DEPFILE "${object}.d"
    COMMENT "Compiling ${relative} for the fuzzers"
    VERBATIM)
endfunction()

function(fovea_fuzz_program name)
  add_custom_command(
    OUTPUT "${PROJECT_BINARY_DIR}/fuzz/${name}"
    COMMAND "${FOVEA_FUZZ_CXX}" ${FOVEA_FUZZ_FLAGS} ${ARGN} -o "${PROJECT_BINARY_DIR}/fuzz/${name}"
    DEPENDS ${ARGN}
    COMMENT "Linking fuzzer ${name}"
    VERBATIM)
  add_custom_target(fuzz_${name} ALL DEPENDS "${PROJECT_BINARY_DIR}/fuzz/${name}")
endfunction()

# Writes a copy of `file` with one place changed, again whenever the file changes.
function(fovea_plant_fault file find replace copy)
  file(READ "${file}" content)
  string(FIND "${content}" "${find}" first)
  string(FIND "${content}" "${find}" last REVERSE)
  if(first EQUAL -1 OR NOT first EQUAL last)
    message(FATAL_ERROR "the planted fault needs '${find}' exactly once in ${file}")
  endif()
  string(REPLACE "${find}" "${replace}" content "${content}")
  file(CONFIGURE OUTPUT "${copy}" CONTENT "${content}" @ONLY)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
endfunction()

function(fovea_add_fuzzer)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;HARNESS;FAULT_FILE;FAULT_FIND;FAULT_REPLACE;MAX_LEN"
                        "SOURCES")
  if(NOT arg_MAX_LEN)
    set(arg_MAX_LEN 512)
  endif()
  cmake_path(ABSOLUTE_PATH arg_HARNESS)
  if(NOT FOVEA_FUZZ_MISSING)
    file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/fuzz")
    fovea_fuzz_object("${arg_HARNESS}" harness)
    set(shared "${harness}")
    set(original "")
    foreach(source IN LISTS arg_SOURCES)
      fovea_fuzz_object("${PROJECT_SOURCE_DIR}/${source}" object)
      if(source STREQUAL arg_FAULT_FILE)
        set(original "${object}")
      else()
        list(APPEND shared "${object}")
      endif()
    endforeach()
    set(copy "${PROJECT_BINARY_DIR}/fuzz/${arg_NAME}_planted.cpp")
    fovea_plant_fault("${PROJECT_SOURCE_DIR}/${arg_FAULT_FILE}" "${arg_FAULT_FIND}"
                      "${arg_FAULT_REPLACE}" "${copy}")
    fovea_fuzz_object("${copy}" changed)
    fovea_fuzz_program(${arg_NAME} ${shared} ${original})
    fovea_fuzz_program(${arg_NAME}_planted ${shared} ${changed})
  endif()
  foreach(kind IN ITEMS clean planted)
    set(suffix "")
    if(kind STREQUAL planted)
      set(suffix "_planted")
    endif()
    fovea_add_script_test(
      NAME fuzz_${arg_NAME}${suffix}
      COMMAND "${PROJECT_SOURCE_DIR}/tests/fuzz/run_fuzzer.sh" ${kind}
              "${PROJECT_BINARY_DIR}/fuzz/${arg_NAME}${suffix}"
              "${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${arg_NAME}" ${arg_MAX_LEN}
              "${FOVEA_FUZZ_MISSING}"
      TIMEOUT 180)
  endforeach()
endfunction()
