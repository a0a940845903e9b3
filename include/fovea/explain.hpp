// What a configuration would run, and why, without loading any weight.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fovea/config.hpp"
#include "fovea/error.hpp"
#include "fovea/platform.hpp"
#include "fovea/select.hpp"

namespace fovea {

// One role (and range of layers and steps) to explain.
struct ExplainQuery {
  std::string role = "self";
  std::string category;
  std::optional<Problem> problem;  // without one only the policy is judged
  PolicyQuery policy;
  std::string layers = "all";
  std::string steps = "all";
};

struct ExplainEntry {
  std::string role;
  std::string category;
  std::string layers;
  std::string steps;
  std::optional<Problem> problem;  // as asked
  std::string source;
  std::optional<Strictness> strictness;  // nothing for a platform default
  std::optional<AttentionSpec> spec;
  ExecutionPathResult report;
  int64_t comm_bytes = 0;
  std::vector<TrailEntry> trail;
};

struct Explanation {
  DeviceFacts facts;
  std::vector<ExplainEntry> entries;
  // True when an entry under require is refused.
  bool refused = false;
};

// The default and every per_role entry when `queries` is empty. Thread-safe.
FOVEA_API Explanation explain(const AttentionConfig& config,
                              std::shared_ptr<const Platform> platform,
                              const std::vector<ExplainQuery>& queries,
                              const ExecutionContext& context);

}  // namespace fovea
