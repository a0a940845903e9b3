#!/usr/bin/env bash
# install_test.sh shared|static SOURCE_DIR BINARY_DIR
#
# Installs Fovea, moves the installed tree, and builds and runs the consumer against it. The library
# that the build directory already has is installed as it is; for the other kind the library is
# configured and built once more, which a compiler cache makes short.
set -euo pipefail

kind=$1 source=$2 build=$3
work=$build/install-test/$kind
consumer=$source/tests/install/consumer
rm -rf "$work"
mkdir -p "$work"

cache_value() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }

c_compiler=$(cache_value CMAKE_C_COMPILER)
cxx_compiler=$(cache_value CMAKE_CXX_COMPILER)
build_type=$(cache_value CMAKE_BUILD_TYPE)

shared=OFF
if [[ $kind == shared ]]; then shared=ON; fi
library_build=$build
if [[ $(cache_value BUILD_SHARED_LIBS) != "$shared" ]]; then
  library_build=$build/install-test/$kind-build
  cmake -S "$source" -B "$library_build" -G Ninja -DBUILD_SHARED_LIBS=$shared \
    -DCMAKE_BUILD_TYPE="$build_type" -DCMAKE_C_COMPILER="$c_compiler" -DCMAKE_CXX_COMPILER="$cxx_compiler" \
    -DFOVEA_WERROR="$(cache_value FOVEA_WERROR)" \
    -DFOVEA_ENABLE_CUDA=OFF -DFOVEA_ENABLE_MPI="$(cache_value FOVEA_ENABLE_MPI)" \
    -DFOVEA_BUILD_TESTS=OFF -DFOVEA_BUILD_BENCH=OFF -DFOVEA_BUILD_TOOLS=OFF -DFOVEA_BUILD_PYTHON=OFF
  cmake --build "$library_build" --parallel 2
fi

cmake --install "$library_build" --prefix "$work/first" >"$work/install.log"
mv "$work/first" "$work/moved"  # nothing installed may remember where it was
prefix=$work/moved
if grep -rIl -e "$source" -e "$work/first" "$prefix" >"$work/leaks"; then
  echo "installed files name the build machine's folders:"
  cat "$work/leaks"
  exit 1
fi

run() { LD_LIBRARY_PATH=$libdir "$@"; }
libdir=$(dirname "$(find "$prefix" -name 'libfovea.*' | head -n 1)")

echo "--- find_package"
cmake -S "$consumer" -B "$work/consumer" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_BUILD_TYPE="$build_type" -DCMAKE_C_COMPILER="$c_compiler" -DCMAKE_CXX_COMPILER="$cxx_compiler"
cmake --build "$work/consumer"
run "$work/consumer/consumer_cpp"
run "$work/consumer/consumer_c"

echo "--- pkg-config"
export PKG_CONFIG_PATH=$libdir/pkgconfig
read -ra options < <(pkg-config --cflags --libs fovea)
"$cxx_compiler" -std=c++20 "$consumer/main.cpp" "${options[@]}" -o "$work/pkg_cpp"
"$c_compiler" -std=c99 "$consumer/main.c" "${options[@]}" -lm -o "$work/pkg_c"
run "$work/pkg_cpp"
run "$work/pkg_c"

if [[ -x $prefix/bin/fovea ]]; then
  run "$prefix/bin/fovea" version
fi
