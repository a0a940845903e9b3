// The small operations around attention: merging partial results, RMSNorm with rotary embedding,
// and changes of layout. CPU tensors are computed by a plain reference form, CUDA tensors by
// kernels that are bound by memory bandwidth. Nothing is allocated; CUDA work is enqueued on
// `stream`, not waited for, and may be captured in a graph. All functions are thread-safe. Errors:
// invalid_tensor naming tensor and field; unsupported; not_built for CUDA tensors in a build
// without CUDA; device_error.
#pragma once

#include <cstdint>
#include <span>

#include "fovea/backend.hpp"
#include "fovea/error.hpp"
#include "fovea/layout.hpp"
#include "fovea/tensor_view.hpp"

namespace fovea {

// An attention result over some of the keys: out [B,S,H,D] in a layout, f32, f16 or bf16; lse f32
// [B,H,S] (packed [H,T]), natural logarithm. All strides but the last axis of `out` are free.
struct PartialAttention {
  TensorView out;
  TensorView lse;
};

inline constexpr int kMaxPartials = 16;

// The result over all keys from 1 to kMaxPartials results over disjoint keys:
//   lse = log(sum_i exp(lse_i)), out = sum_i exp(lse_i - lse) out_i,
// in float32. Parts with lse_i = -inf are left out, whatever their out_i holds; if all are, out = 0
// and lse = -inf. `out` may be the tensor of a part, `lse` must not overlap any. Parts share one
// dtype; out has its own.
FOVEA_API Status merge_partials(std::span<const PartialAttention> parts, const TensorView& out,
                                const TensorView& lse, Layout layout = Layout::bshd,
                                Stream stream = {});

// Over what the mean square is taken: each head's D elements (weight [D]) or all of a token's
// (weight [H * D]).
enum class NormAxis : uint8_t { head, token };
// Which elements rotate together: 2i with 2i + 1, or i with i + R/2.
enum class RotaryPairs : uint8_t { interleaved, half };

struct NormRope {
  TensorView weight;  // f32, f16 or bf16, contiguous; absent: no normalisation
  NormAxis norm = NormAxis::head;
  double epsilon = 1e-6;
  TensorView
      cos;  // f32 [S,R/2] or [B,S,R/2], last axis contiguous, R <= D even; absent: no rotation
  TensorView sin;
  RotaryPairs pairs = RotaryPairs::interleaved;
};

// y = x / sqrt(mean(x^2) + epsilon) * weight, then for the first R columns, with pair (a, b) number
// i of token s:  (a cos_i - b sin_i, a sin_i + b cos_i). x and out: [B,S,H,D] in `layout`, f32, f16
// or bf16, one dtype, all strides but the last axis free; `out` may be `x`. Computed in float32.
// CUDA: D is at most 5120, and with NormAxis::token H * D at most 10240.
FOVEA_API Status norm_rope(const TensorView& x, const NormRope& what, const TensorView& out,
                           Layout layout = Layout::bshd, Stream stream = {});

// Copies [B,S,H,D] between layouts and strides (bshd, bhsd). Any dtype; both share it. The tensors
// must not overlap.
FOVEA_API Status copy_layout(const TensorView& from, Layout from_layout, const TensorView& to,
                             Layout to_layout, Stream stream = {});

// Takes document b's rows 0 to n_b - 1, n_b = cu_seqlens[b+1] - cu_seqlens[b], from a padded tensor
// [B,S,H,D] to rows cu_seqlens[b] and on of a packed one [T,H,D]. cu_seqlens int32 [B+1] on the
// tensors' device; its values are not checked on CUDA, where rows outside either tensor are
// skipped.
FOVEA_API Status pack_documents(const TensorView& padded, Layout layout,
                                const TensorView& cu_seqlens, const TensorView& packed,
                                Stream stream = {});
// The way back; padded rows behind a document's end become zero.
FOVEA_API Status unpack_documents(const TensorView& packed, const TensorView& cu_seqlens,
                                  const TensorView& padded, Layout layout, Stream stream = {});

}  // namespace fovea
