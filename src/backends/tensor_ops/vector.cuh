// Eight elements at once, or one, between memory and float registers.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "src/backends/tensor_ops/kernels.hpp"

namespace fovea::tensor_ops {

inline constexpr int kVector = 8;

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ float widen(__half x) { return __half2float(x); }
__device__ __forceinline__ float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ void narrow(float& to, float x) { to = x; }
__device__ __forceinline__ void narrow(__half& to, float x) { to = __float2half_rn(x); }
__device__ __forceinline__ void narrow(__nv_bfloat16& to, float x) { to = __float2bfloat16_rn(x); }

/// Memory of kCount elements that moves in units of up to 16 bytes.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount < 16 ? sizeof(T) * kCount : 16) Pack {
  T element[kCount];
};

template <int kCount, class T>
__device__ __forceinline__ Pack<T, kCount> load(const T* from) {
  return *reinterpret_cast<const Pack<T, kCount>*>(from);
}
template <class T, int kCount>
__device__ __forceinline__ void store(T* to, const float (&x)[kCount]) {
  Pack<T, kCount> pack;
#pragma unroll
  for (int i = 0; i < kCount; i++) narrow(pack.element[i], x[i]);
  *reinterpret_cast<Pack<T, kCount>*>(to) = pack;
}

/// Whether every run of `elements` elements starts at a multiple of 16 bytes.
inline bool aligned(const HeadsData& t, int element_bytes, int elements) {
  return reinterpret_cast<std::uintptr_t>(t.data) % 16 == 0 && elements * element_bytes % 16 == 0 &&
         t.batch % elements == 0 && t.seq % elements == 0 && t.head % elements == 0;
}
inline int bytes_of(Element element) { return element == Element::f32 ? 4 : 2; }

/// Calls f with a value of the element's type.
template <class F>
auto with_type(Element element, F&& f) {
  if (element == Element::f16) return f(__half{});
  if (element == Element::bf16) return f(__nv_bfloat16{});
  return f(float{});
}

}  // namespace fovea::tensor_ops
