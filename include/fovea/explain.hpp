// What a configuration would run, and why, without loading any weight.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fovea/calibration.hpp"
#include "fovea/config.hpp"
#include "fovea/error.hpp"
#include "fovea/model_preset.hpp"
#include "fovea/platform.hpp"
#include "fovea/schedule.hpp"
#include "fovea/schedule_density.hpp"
#include "fovea/select.hpp"

namespace fovea {

// One role to explain. `layers` and `steps` are printed as they are; explain_schedule() fills them.
struct ExplainQuery {
  std::string role = "self";
  std::string category;
  std::optional<Problem> problem;  // without one only the policy is judged
  PolicyQuery policy;
  std::string layers = "all";
  std::string steps = "all";
  std::optional<VideoShape> video;  // makes the density of radial and local patterns known
};

// How many cells of a run (steps x layers) are sparse.
struct SparseShare {
  int64_t on = 0;
  int64_t of = 0;
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
  std::string profile;                // of the schedule; empty: the base configuration
  std::optional<DenseCause> dense;    // why a sparse spec is dense here
  std::optional<SparseShare> sparse;  // of the whole run, when the role has a sparse spec
  std::optional<SkipDecision> skip;   // of an entry with skip_softmax
  std::string skip_ignored_by;        // the pattern that keeps the layer dense
  ExecutionPathResult report;
  std::vector<Reason> assumed;  // facts not given or not understood, and what they are taken to be
  int64_t comm_bytes = 0;
  std::vector<TrailEntry> trail;
  std::optional<BackendName> nearest;  // of a refusal: the first name of the platform that can
};

struct Explanation {
  DeviceFacts facts;
  std::vector<ExplainEntry> entries;
  std::vector<std::string> warnings;  // of the schedule; also logged
  // True when an entry under require is refused.
  bool refused = false;
};

// One query for the default and one for every per_role entry. Pure; thread-safe.
FOVEA_API std::vector<ExplainQuery> all_queries(const AttentionConfig& config);

// all_queries(config) when `queries` is empty. Thread-safe.
FOVEA_API Explanation explain(const AttentionConfig& config,
                              std::shared_ptr<const Platform> platform,
                              const std::vector<ExplainQuery>& queries,
                              const ExecutionContext& context);

// A run whose length is known.
struct RunLength {
  int64_t steps = 1;
  std::optional<int64_t>
      layers;  // nothing: unknown, which is fine while no rule tells layers apart
  // One per step, needed when the schedule has sigma windows: the normalised timesteps, which also
  // settle the gate of skip_softmax.
  std::vector<double> sigmas;
};

// The calls of a model as a run to explain. What is not set is the model's own.
struct ModelQuery {
  std::optional<std::string> role;  // only this one
  std::string category;             // in place of those of the roles
  DType dtype = kBF16;
  bool mask_free = false;  // beside what is known of the model
  std::optional<int64_t> steps;
  std::optional<int64_t> layers;  // a role with fewer keeps its own number
  std::vector<double> sigmas;
};
struct ModelRun {
  std::vector<ExplainQuery> queries;
  std::vector<RunLength> lengths;
};
// One query for every role, batch 1. Error invalid_argument, which begins with the field at fault:
// a role that the model has not, more layers than a role has, numbers below 1. Pure; thread-safe.
FOVEA_API Result<ModelRun> model_queries(const ModelDescription& model, const ModelQuery& query);

// One entry for every rectangle of steps and layers that runs alike, `queries` and `lengths` in
// pairs. A sparse spec that never runs sparse is refused under `require` and warned of once under
// `prefer`. `schedule` may be null. Error invalid_config: the schedule is invalid or does not fit
// the run; a layer rule without a number of layers. Thread-safe.
FOVEA_API Result<Explanation> explain_schedule(const AttentionConfig& config,
                                               const AttentionSchedule* schedule,
                                               std::shared_ptr<const Platform> platform,
                                               const std::vector<ExplainQuery>& queries,
                                               const std::vector<RunLength>& lengths,
                                               const ExecutionContext& context);

}  // namespace fovea
