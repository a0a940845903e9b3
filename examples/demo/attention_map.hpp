// The attention weights that a picture shows.
#pragma once

#include <cstdint>

#include "examples/demo/picture.hpp"
#include "fovea/backend.hpp"

namespace fovea::demo {

// The weights of one batch item in the head whose attention is the most focused (least entropy).
// float32 tensors in layout bshd; the mask, if there is one, is boolean [B,1,1,Skv].
AttentionMap attention_map(const AttentionTensors& tensors, int64_t batch);

}  // namespace fovea::demo
