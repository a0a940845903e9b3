#!/usr/bin/env bash
# The kernels for 64-bit Arm, tested under emulation: cross-compiles the library and runs the tests of the
# kernels and the contract suite with qemu. Run by hand: it takes a build of its own and minutes of
# emulation, which continuous integration does not spend.
#   apt-get install g++-aarch64-linux-gnu qemu-user googletest
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

for tool in aarch64-linux-gnu-g++ qemu-aarch64; do
  command -v "$tool" >/dev/null || { echo "test_neon.sh: $tool is missing; see the first lines" >&2; exit 2; }
done
readonly toolchain=$PWD/cmake/toolchains/aarch64-linux-gnu.cmake build=$PWD/build-neon
readonly jobs=${JOBS:-$(nproc)}

cmake -S /usr/src/googletest -B "$build/googletest" -G Ninja -DCMAKE_TOOLCHAIN_FILE="$toolchain" \
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$build/prefix" >/dev/null
cmake --build "$build/googletest" -j "$jobs" --target install >/dev/null
cmake -S . -B "$build" -G Ninja -DCMAKE_TOOLCHAIN_FILE="$toolchain" -DCMAKE_BUILD_TYPE=Release \
  -DGTest_DIR="$build/prefix/lib/cmake/GTest" -DFOVEA_ENABLE_CUDA=OFF -DFOVEA_BUILD_TOOLS=OFF \
  -DFOVEA_BUILD_BENCH=OFF -DFOVEA_BUILD_PYTHON=OFF -DFOVEA_WERROR=ON >/dev/null
cmake --build "$build" -j "$jobs" --target simd_test cpu_flash_test contract_test

run() {
  local name=$1
  shift
  echo "== $name"
  qemu-aarch64 -L /usr/aarch64-linux-gnu "$(find "$build/tests" -name "$name" -type f)" --gtest_brief=1 "$@"
}
export OMP_NUM_THREADS=2
# Emulation has no speed to measure.
run simd_test --gtest_filter='-Peak.Loops*'
run cpu_flash_test
# The instance that runs must be the one asked for: the suite has no such cases otherwise.
qemu-aarch64 -L /usr/aarch64-linux-gnu "$build/tests/contract/contract_test" --gtest_list_tests |
  grep -q cpu_flash_neon || { echo "test_neon.sh: the contract suite has no NEON cases" >&2; exit 1; }
run contract_test --gtest_filter='*cpu_flash_neon*'
