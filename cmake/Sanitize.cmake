# FOVEA_SANITIZE instruments everything that this project compiles. FOVEA_SANITIZE_ENVIRONMENT is
# the environment that tests need under it.

set(FOVEA_SANITIZE_ENVIRONMENT "")
if(FOVEA_SANITIZE STREQUAL "address")
  set(flags -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  list(APPEND FOVEA_SANITIZE_ENVIRONMENT
       "ASAN_OPTIONS=allocator_may_return_null=1:detect_stack_use_after_return=1:strict_string_checks=1:check_initialization_order=1"
       "UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1")
elseif(FOVEA_SANITIZE STREQUAL "thread")
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "FOVEA_SANITIZE=thread needs clang: with another compiler's OpenMP runtime "
                        "every parallel region looks like a race. Use the preset tsan.")
  endif()
  # libarcher tells ThreadSanitizer what libomp's barriers and tasks order.
  string(REGEX MATCH "^[0-9]+" clang_major "${CMAKE_CXX_COMPILER_VERSION}")
  find_library(FOVEA_ARCHER archer PATHS /usr/lib/llvm-${clang_major}/lib NO_CACHE NO_DEFAULT_PATH)
  if(NOT FOVEA_ARCHER)
    message(FATAL_ERROR "libarcher was not found. On Debian: "
                        "apt-get install libomp-${clang_major}-dev")
  endif()
  set(flags -fsanitize=thread -fno-omit-frame-pointer)
  list(APPEND FOVEA_SANITIZE_ENVIRONMENT "OMP_TOOL_LIBRARIES=${FOVEA_ARCHER}"
       "TSAN_OPTIONS=ignore_noninstrumented_modules=1:halt_on_error=1:second_deadlock_stack=1")
elseif(FOVEA_SANITIZE)
  message(FATAL_ERROR "FOVEA_SANITIZE is '${FOVEA_SANITIZE}'; accepted: empty, address, thread")
endif()

if(FOVEA_SANITIZE)
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:${flags}>")
  add_link_options(${flags})
endif()
