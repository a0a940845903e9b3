// Block lists of a call as a sparse pattern of its Problem:
// mask(q=128,kv=64,most=9,batch=1,heads=24).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "fovea/problem.hpp"

namespace fovea {

struct ListShape {
  static constexpr std::string_view kName = "mask";

  int32_t block_q = 128;
  int32_t block_kv = 128;
  int64_t most = 1;      // indices of a row
  int64_t batch = 1;     // 1: shared
  int64_t heads = 1;     // 1: shared
  bool partial = false;  // AttentionTensors::block_partial is given

  bool operator==(const ListShape&) const = default;
};

SparsePattern to_pattern(const ListShape& lists);

// Nothing when the problem has no block lists. Parameters that are absent have their defaults;
// unknown or malformed ones are the caller's to refuse. Allocates nothing.
std::optional<ListShape> list_shape(const Problem& problem) noexcept;

}  // namespace fovea
