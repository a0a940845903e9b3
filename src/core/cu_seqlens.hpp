// The document boundaries of packed tensors.
#pragma once

#include <cstdint>
#include <string_view>

#include "fovea/error.hpp"
#include "fovea/tensor_view.hpp"

namespace fovea {

// Checks contiguous int32 [N+1] on the CPU: it starts at 0, never falls and ends at `tokens`.
// Returns the longest document. Error invalid_value naming tensor and index.
Result<int64_t> read_cu_seqlens(std::string_view name, const TensorView& view, int64_t tokens);

}  // namespace fovea
