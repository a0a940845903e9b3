# fovea_set_warnings(TARGET): the project's warnings, as errors with FOVEA_WERROR.

set(FOVEA_CXX_WARNINGS -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wnon-virtual-dtor)
set(FOVEA_C_WARNINGS -Wall -Wextra -Wpedantic -Wconversion -Wshadow)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # GCC keeps sign conversions out of -Wconversion in C++; both compilers ask for the same.
  list(APPEND FOVEA_CXX_WARNINGS -Wno-sign-conversion)
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 warns about overlapping copies inside std::string's own operator+ (GCC bug 105651).
  list(APPEND FOVEA_CXX_WARNINGS -Wno-restrict)
endif()

function(fovea_set_warnings target)
  target_compile_options(
    ${target}
    PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${FOVEA_CXX_WARNINGS}>"
            "$<$<COMPILE_LANGUAGE:C>:${FOVEA_C_WARNINGS}>"
            "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Xcompiler=-Wall,-Wextra>")
  if(FOVEA_WERROR)
    target_compile_options(
      ${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX,C>:-Werror>"
                        "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Werror all-warnings>")
  endif()
endfunction()
