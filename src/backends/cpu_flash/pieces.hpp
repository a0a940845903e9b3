// Mixed causal and full attention: each piece of query rows is a call of its own on the same
// tensors.
#pragma once

#include <cstdint>

#include "fovea/problem.hpp"
#include "src/backends/cpu_flash/params.hpp"

namespace fovea::cpu_flash {

// The part of `whole` that computes the rows of `piece`, which begin at row `begin`: it reads the
// keys before the piece's end and writes its rows of out and lse. Null pointers stay null, so that
// sizes can be asked for. Pure.
Params piece_params(const Params& whole, const Piece& piece, int64_t begin) noexcept;

}  // namespace fovea::cpu_flash
