#include "src/backends/cpu_flash/pieces.hpp"

namespace fovea::cpu_flash {
namespace {

int64_t bytes(FloatType type) noexcept { return type == FloatType::f32 ? 4 : 2; }

int64_t bytes(MaskType type) noexcept {
  switch (type) {
    case MaskType::boolean:
    case MaskType::uint8:
      return 1;
    case MaskType::f16:
    case MaskType::bf16:
      return 2;
    case MaskType::int32:
    case MaskType::f32:
      return 4;
    case MaskType::int64:
      return 8;
  }
  return 1;
}

const void* advanced(const void* data, int64_t offset) noexcept {
  return data == nullptr ? nullptr : static_cast<const char*>(data) + offset;
}

}  // namespace

Params piece_params(const Params& whole, const Piece& piece, int64_t begin) noexcept {
  Params part = whole;
  part.seq_q = piece.rows;
  part.seq_kv = piece.keys;
  part.left = -1;
  part.right = piece.causal ? 0 : -1;
  part.q.data = advanced(whole.q.data, begin * whole.q.seq * bytes(whole.dtype));
  if (whole.out != nullptr)
    part.out = static_cast<char*>(whole.out) + begin * whole.out_seq * bytes(whole.out_dtype);
  if (whole.lse != nullptr) part.lse = whole.lse + begin;
  for (int32_t m = 0; m < whole.num_masks; ++m) {
    const Mask& mask = whole.masks[m];
    part.masks[m].data = advanced(mask.data, begin * mask.row * bytes(mask.type));
  }
  return part;
}

}  // namespace fovea::cpu_flash
