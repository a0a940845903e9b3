// The plan around a launch, for dense calls and for calls with block lists.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "fovea/backend.hpp"
#include "src/backends/block_lists.hpp"
#include "src/backends/flash_sm90/config.hpp"
#include "src/backends/instance.hpp"

namespace fovea::backends {

std::optional<Reason> needs_hopper(const DeviceFacts& facts);

// What all rows of these kernels share.
constexpr Instance flash_sm90_row(std::string_view name, int64_t min, int64_t max) {
  Instance in;
  in.name = name;
  in.dtypes = {Element::f16, Element::bf16};
  in.head_dim = {min, max, 8};
  in.dim_v = {8, max, 8};
  in.alignment = 16;
  in.stride_multiple = 8;
  in.device = needs_hopper;
  in.built = FOVEA_CUDA_SM90 != 0;
  return in;
}

// A problem as the kernels' launcher sees it. `lists`: null for a dense call.
flash_sm90::Problem flash_sm90_problem(const Problem& problem, const ListShape* lists = nullptr);

// `lists`: where the problem's block lists come from, planned or given; null for a dense call.
// Lists that are known go to the device once. Errors: not_built, out_of_memory, device_error.
Result<std::unique_ptr<Plan>> make_flash_sm90_plan(const Problem& problem,
                                                   const flash_sm90::Choice& choice, Device device,
                                                   Receipt receipt,
                                                   const ListRequest* lists = nullptr);

}  // namespace fovea::backends
