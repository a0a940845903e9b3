#!/bin/sh
# Builds the GPU test programs that need no CMake and no GoogleTest, on a machine with nvcc and g++:
#   tests/gpu/build_standalone.sh OUT [ARCH]     from the repository's root; ARCH 90 by default
# OUT gets flash_sm80_test, cuda_sdpa_test and tensor_ops_test. JOBS limits the compilations at once.
set -eu
out=$1 arch=${2:-90}
objects=$(mktemp -d)
trap 'rm -rf "$objects"' EXIT
mkdir -p "$out"
flags="-std=c++20 -O3 -I. -Iinclude -DFOVEA_CUDA_PORTABLE=1 -gencode=arch=compute_$arch,code=sm_$arch"
kernels="src/cuda_device/device_guard.cpp src/backends/flash_sm80/launch.cu
  $(ls src/backends/flash_sm80/instances/*.cu) src/backends/cuda_sdpa/launch.cu"
operations="src/cuda_device/device_guard.cpp $(ls src/backends/tensor_ops/*.c*[pu])
  src/core/element.cpp src/core/tensor_view.cpp src/core/tensor_memory.cpp src/core/dtype.cpp
  src/core/device.cpp src/core/layout.cpp src/core/error.cpp src/core/reason.cpp src/core/text.cpp"
tests="tests/gpu/flash_sm80_test.cu tests/gpu/cuda_sdpa_test.cu tests/gpu/tensor_ops_test.cu"

name() { echo "$objects/$(echo "$1" | tr / _).o"; }
names() { for file in "$@"; do name "$file"; done; }
for file in $(printf '%s\n' $kernels $operations $tests | sort -u); do
  echo "nvcc $flags -c $file -o $(name "$file")"
done | xargs -P "${JOBS:-$(nproc)}" -I{} sh -c '{}'
nvcc $(names tests/gpu/flash_sm80_test.cu $kernels) -o "$out/flash_sm80_test"
nvcc $(names tests/gpu/cuda_sdpa_test.cu $kernels) -o "$out/cuda_sdpa_test"
nvcc $(names tests/gpu/tensor_ops_test.cu $operations) -o "$out/tensor_ops_test"
