// A plan around a kernel that takes a cuda::AttentionCall.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "fovea/backend.hpp"
#include "fovea/device.hpp"
#include "fovea/error.hpp"
#include "fovea/problem.hpp"
#include "fovea/receipt.hpp"
#include "src/cuda/attention_call.hpp"

namespace fovea::backends {

// Sizes, strides, scale and masks of a problem that validate() accepts; no pointers.
cuda::AttentionCall make_call(const Problem& problem);

// What keeps the sizes out of a kernel whose thread blocks take `block_q` query rows each: it
// counts rows and blocks in 31 bits.
std::optional<Reason> call_refusal(const Problem& problem, int64_t block_q);

// Enqueues on a device's stream. Not success: why not.
using CallLauncher =
    std::function<Status(const cuda::AttentionCall& call, int device, Stream stream)>;

// A plan for tensors on `device` that needs no workspace. `alignment`: bytes that the addresses of
// q, k, v and out must be divisible by. Fills in the receipt's device.
std::unique_ptr<Plan> make_call_plan(Problem problem, Device device, size_t alignment,
                                     Receipt receipt, CallLauncher launch);

}  // namespace fovea::backends
