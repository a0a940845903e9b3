#!/usr/bin/env bash
# build_example.sh SOURCE_DIR BINARY_DIR C_COMPILER: examples/plugin with nothing but the headers.
set -euo pipefail
cmake -S "$1/examples/plugin" -B "$2" -DFOVEA_INCLUDE_DIR="$1/include" -DCMAKE_C_COMPILER="$3" \
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS="-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror"
cmake --build "$2"
test -f "$2/libfovea-backend-naive.so"
