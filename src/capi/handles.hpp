// What stands behind the opaque handles, and how C++ results become codes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fovea/attention.hpp"
#include "fovea/c_api.h"
#include "fovea/error.hpp"
#include "fovea/metadata.hpp"
#include "fovea/sparse.hpp"

struct fovea_error {
  fovea::Error error;
  // Texts that the C reasons point to, one set for each reason.
  struct Texts {
    std::string code, message;
  };
  std::vector<Texts> texts;
};
struct fovea_config {
  fovea::AttentionConfig config;
};
// What the configuration says where a call says nothing.
struct fovea_call_defaults {
  std::optional<double> scale;
  std::optional<bool> is_causal;
  double skip_gate = 0;  // skip_softmax.disabled_until_timestep; 0: none
};
struct fovea_attention {
  std::unique_ptr<fovea::Executor> executor;
  fovea::Attention attention;
  fovea_call_defaults defaults;
};
struct fovea_plan {
  fovea::CallPlan plan;
  fovea_call_defaults defaults;
  int64_t protected_kv_prefix = 0;  // of the metadata it was made with
  std::optional<bool> skips;        // the side of the gate it was made for; nothing: not stated
};
struct fovea_mask_map {
  fovea::MaskMap map;
};
struct fovea_sparse_state {
  fovea::SparseAttentionState state;
  std::string dense_backend;
};
struct fovea_block_mask {
  std::shared_ptr<const fovea::BlockMask> mask;
};
struct fovea_metadata {
  fovea::AttentionMetadata metadata;
};
struct fovea_receipt {
  std::string json;
};

namespace fovea::capi {

// Hands the error to the caller (when it wants one) and returns its code.
int32_t fail(Error error, fovea_error** out);

// Copies into a string that fovea_string_free frees; null when there is no memory.
char* copy(const std::string& text);

// Runs `body`, a callable returning Status. Host allocation failure becomes out_of_memory, so that
// no exception crosses the interface.
template <class Body>
int32_t guard(fovea_error** error, Body&& body) noexcept {
  try {
    Status status = body();
    return status ? FOVEA_OK : fail(std::move(status).error(), error);
  } catch (...) {
    if (error != nullptr) *error = nullptr;
    return static_cast<int32_t>(ErrorCode::out_of_memory);
  }
}

inline Error null_argument(const char* function, const char* argument) {
  return {ErrorCode::invalid_argument, std::string(function) + ": " + argument + " is NULL", {}};
}

// Copies the fields that the caller's version of the struct has; the rest keeps its default.
template <class T>
Result<T> sized(const T* given, const char* function, const char* argument, T defaults) {
  if (given == nullptr) return null_argument(function, argument);
  if (given->struct_size < sizeof(size_t) || given->struct_size > 64 * sizeof(T))
    return Error{ErrorCode::invalid_argument,
                 std::string(function) + ": " + argument + "->struct_size is " +
                     std::to_string(given->struct_size) + "; set it to sizeof(*" + argument + ")",
                 {}};
  std::memcpy(&defaults, given, std::min(given->struct_size, sizeof(T)));
  return defaults;
}

}  // namespace fovea::capi
