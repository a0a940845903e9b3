// What really ran.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "fovea/backend_name.hpp"
#include "fovea/calibration.hpp"
#include "fovea/dtype.hpp"
#include "fovea/execution.hpp"

namespace fovea {

// The named backend that was passed over under `prefer`, and why.
struct Fallback {
  BackendName from;
  std::vector<Reason> reasons;
};

// Made at plan time, immutable; a plan's runs all share it.
struct Receipt {
  BackendName backend;
  std::string provider;
  std::string path;
  std::string instance;
  std::string device;
  std::string isa;
  std::string compute_qk = "f32";
  std::string compute_pv = "f32";
  std::string accumulate = "f32";
  int64_t padding_head_dim = 0;  // head_dim as computed minus head_dim as given
  int64_t padding_seq_kv = 0;
  std::vector<std::string> copies;  // tensors copied because the spec allowed it
  std::optional<double> density;
  bool deterministic = false;
  bool scheduled_dense = false;      // a sparse schedule asked for a dense step; not a fallback
  std::optional<SkipDecision> skip;  // what skip_softmax came to, where the entry has it
  CompilationMode compilation_mode = CompilationMode::eager_only;
  size_t workspace_bytes = 0;
  // Why a better kernel family of the same name did not take the problem; not a fallback.
  std::vector<Reason> dispatch;
  std::optional<Fallback> fallback;
};

}  // namespace fovea
