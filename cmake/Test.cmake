# Test registration. Every ctest entry leaves a JUnit-like XML file of its cases in
# <build>/test-results, from which scripts/summarize_tests.py counts passed, failed and skipped.

set(FOVEA_TEST_RESULTS "${PROJECT_BINARY_DIR}/test-results")
file(MAKE_DIRECTORY "${FOVEA_TEST_RESULTS}")

# Two OpenMP runtimes that spin on two cores slow each other down by orders of magnitude.
set(FOVEA_TEST_ENVIRONMENT "OMP_WAIT_POLICY=passive" ${FOVEA_SANITIZE_ENVIRONMENT})

find_program(FOVEA_SYSTEM_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH NO_CACHE)
set(FOVEA_PYTHON "${FOVEA_SYSTEM_PYTHON}" CACHE FILEPATH "Python interpreter for the tests")
if(NOT FOVEA_PYTHON)
  find_program(FOVEA_PYTHON python3)
endif()

# fovea_configure_test(NAME TIMEOUT seconds LABELS label...): what every ctest entry has.
function(fovea_configure_test name timeout)
  set(labels ${ARGN})
  if(NOT labels)
    set(labels cpu)
  endif()
  if(FOVEA_SANITIZE)
    math(EXPR timeout "10 * ${timeout}")
  endif()
  set_tests_properties(
    ${name}
    PROPERTIES TIMEOUT ${timeout}
               LABELS "${labels}"
               ENVIRONMENT "${FOVEA_TEST_ENVIRONMENT}"
               SKIP_RETURN_CODE 77
               WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
endfunction()

# What needs a GPU is built by the target gpu_tests and listed in <build>/gpu_tests.txt, which
# scripts/gpu_suite.sh reads: a line "label|name|seconds|kind|program|arguments" for each run, after
# the build folder. The kind is gtest or plain (passes with exit code 0).
add_custom_target(gpu_tests)
define_property(GLOBAL PROPERTY FOVEA_GPU_TESTS)

function(fovea_note_gpu_test name program timeout labels arguments)
  foreach(label IN ITEMS gpu multi_gpu)
    if(NOT label IN_LIST labels)
      continue()
    endif()
    list(JOIN arguments " " text)
    set_property(GLOBAL APPEND_STRING PROPERTY FOVEA_GPU_TESTS
                                               "${label}|${name}|${timeout}|gtest|$<TARGET_FILE:${program}>|${text}\n")
    add_dependencies(gpu_tests ${program})
    get_target_property(sources ${program} SOURCES)
    set(alarm "${PROJECT_SOURCE_DIR}/tests/gpu/case_alarm.cpp")
    if(NOT alarm IN_LIST sources)
      target_sources(${program} PRIVATE "${alarm}")
    endif()
  endforeach()
endfunction()

# fovea_add_gpu_program(NAME <name> SOURCES <file>... [ARGS ...] [TIMEOUT <seconds>])
#
# A CUDA program of its own, without GoogleTest, that fails with an exit code. Only the GPU suite runs
# it: without a GPU it has nothing to say.
function(fovea_add_gpu_program)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;TIMEOUT" "SOURCES;ARGS")
  if(NOT arg_NAME OR NOT arg_SOURCES)
    message(FATAL_ERROR "fovea_add_gpu_program(NAME <name> SOURCES <file>... [...])")
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_executable(${arg_NAME} EXCLUDE_FROM_ALL ${arg_SOURCES})
  set_target_properties(${arg_NAME} PROPERTIES CUDA_ARCHITECTURES "${fovea_archs_portable}")
  target_link_libraries(${arg_NAME} PRIVATE fovea_internal)
  add_dependencies(gpu_tests ${arg_NAME})
  list(JOIN arg_ARGS " " text)
  set_property(GLOBAL APPEND_STRING PROPERTY FOVEA_GPU_TESTS
                                             "gpu|${arg_NAME}|${arg_TIMEOUT}|plain|$<TARGET_FILE:${arg_NAME}>|${text}\n")
endfunction()

function(fovea_write_gpu_tests)
  get_property(lines GLOBAL PROPERTY FOVEA_GPU_TESTS)
  file(GENERATE OUTPUT "${PROJECT_BINARY_DIR}/gpu_tests.txt" CONTENT "${PROJECT_BINARY_DIR}\n${lines}")
endfunction()

# fovea_add_test(NAME <name> SOURCES <file>... [LABELS cpu|gpu|multi_gpu|slow|isa...]
#                [LIBRARIES <target>...] [ARGS <argument>...] [ENVIRONMENT VAR=value...]
#                [TIMEOUT <seconds>] [SERIAL] [PUBLIC])
#
# A GoogleTest program. It links fovea_internal (all symbols, internal headers) unless PUBLIC is
# given: then it links fovea as a user would. It runs in the source root. LABELS default to cpu.
# SERIAL keeps other tests from running beside it.
function(fovea_add_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "SERIAL;PUBLIC" "NAME;TIMEOUT"
                        "SOURCES;LABELS;LIBRARIES;ARGS;ENVIRONMENT")
  if(NOT arg_NAME OR NOT arg_SOURCES OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "fovea_add_test(NAME <name> SOURCES <file>... [...]); not understood: "
                        "${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  add_executable(${arg_NAME} ${arg_SOURCES})
  fovea_set_warnings(${arg_NAME})
  # A test runs once per compilation, and the optimiser costs half of the compilation.
  target_compile_options(${arg_NAME} PRIVATE "$<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>")
  target_compile_definitions(${arg_NAME} PRIVATE FOVEA_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                                                 FOVEA_BINARY_DIR="${PROJECT_BINARY_DIR}")
  if(arg_PUBLIC)
    target_link_libraries(${arg_NAME} PRIVATE fovea)
  else()
    target_link_libraries(${arg_NAME} PRIVATE fovea_internal)
  endif()
  target_link_libraries(${arg_NAME} PRIVATE ${arg_LIBRARIES} GTest::gtest_main Threads::Threads)
  add_test(NAME ${arg_NAME} COMMAND ${arg_NAME} "--gtest_output=xml:${FOVEA_TEST_RESULTS}/${arg_NAME}.xml"
                                    ${arg_ARGS})
  fovea_configure_test(${arg_NAME} ${arg_TIMEOUT} ${arg_LABELS})
  if(arg_ENVIRONMENT)
    set_property(TEST ${arg_NAME} APPEND PROPERTY ENVIRONMENT ${arg_ENVIRONMENT})
  endif()
  if(arg_SERIAL)
    set_tests_properties(${arg_NAME} PROPERTIES RUN_SERIAL ON)
  endif()
  fovea_note_gpu_test(${arg_NAME} ${arg_NAME} ${arg_TIMEOUT} "${arg_LABELS}" "${arg_ARGS}")
endfunction()

# fovea_add_test_run(NAME <name> PROGRAM <test> ARGS <argument>... [LABELS ...] [TIMEOUT <seconds>])
#
# Another run of a program of fovea_add_test, with other arguments.
function(fovea_add_test_run)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;PROGRAM;TIMEOUT" "ARGS;LABELS")
  if(NOT arg_NAME OR NOT arg_PROGRAM OR NOT arg_ARGS)
    message(FATAL_ERROR "fovea_add_test_run(NAME <name> PROGRAM <test> ARGS <argument>... [...])")
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  add_test(NAME ${arg_NAME} COMMAND ${arg_PROGRAM} "--gtest_output=xml:${FOVEA_TEST_RESULTS}/${arg_NAME}.xml"
                                    ${arg_ARGS})
  fovea_configure_test(${arg_NAME} ${arg_TIMEOUT} ${arg_LABELS})
  fovea_note_gpu_test(${arg_NAME} ${arg_PROGRAM} ${arg_TIMEOUT} "${arg_LABELS}" "${arg_ARGS}")
endfunction()

# fovea_add_python_test(NAME <name> FILE <test.py> [LABELS ...] [ENVIRONMENT VAR=value...]
#                       [TIMEOUT <seconds>])
#
# A file of unittest cases, counted case by case. Skipped as a whole under a sanitizer, because the
# interpreter is not instrumented.
function(fovea_add_python_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;FILE;TIMEOUT" "LABELS;ENVIRONMENT")
  if(NOT arg_NAME OR NOT arg_FILE OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "fovea_add_python_test(NAME <name> FILE <test.py> [...])")
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  cmake_path(ABSOLUTE_PATH arg_FILE)
  set(skip "")
  if(FOVEA_SANITIZE)
    set(skip --skip "the Python interpreter is not built with the sanitizer")
  endif()
  add_test(NAME ${arg_NAME}
           COMMAND "${FOVEA_PYTHON}" "${PROJECT_SOURCE_DIR}/scripts/run_unittest.py" ${skip} "${arg_FILE}"
                   "${FOVEA_TEST_RESULTS}/${arg_NAME}.xml")
  fovea_configure_test(${arg_NAME} ${arg_TIMEOUT} ${arg_LABELS})
  set_property(
    TEST ${arg_NAME} APPEND
    PROPERTY ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1" "TEST_BINARY_DIR=${PROJECT_BINARY_DIR}"
             "TEST_SOURCE_DIR=${PROJECT_SOURCE_DIR}" ${arg_ENVIRONMENT})
endfunction()

# fovea_add_script_test(NAME <name> COMMAND <command>... [LABELS ...] [TIMEOUT <seconds>])
#
# A command that passes with exit code 0 and skips with 77 (its last line is the reason). It counts
# as one case.
function(fovea_add_script_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;TIMEOUT" "COMMAND;LABELS")
  if(NOT arg_NAME OR NOT arg_COMMAND OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "fovea_add_script_test(NAME <name> COMMAND <command>... [...])")
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  add_test(NAME ${arg_NAME} COMMAND ${arg_COMMAND})
  fovea_configure_test(${arg_NAME} ${arg_TIMEOUT} ${arg_LABELS})
endfunction()
