// What a mask means when nobody has published it.
#pragma once

#include "fovea/execution.hpp"
#include "fovea/problem.hpp"

namespace fovea {

// By shape alone: padding for a mask without head and query axis, otherwise arbitrary; none without
// a mask. Axes of size 1 do not count.
inline MaskMode unpublished_mask_mode(const Problem& p) noexcept {
  if (p.mask.kind == MaskKind::none) return MaskMode::none;
  const bool by_row = p.mask.per_query && p.seq_q > 1;
  const bool by_head = p.mask.per_head && p.heads_q > 1;
  return by_row || by_head ? MaskMode::arbitrary : MaskMode::padding;
}

}  // namespace fovea
