// From a configuration and a problem to a plan, with the whole trail.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fovea/backend.hpp"
#include "fovea/config.hpp"
#include "fovea/error.hpp"
#include "fovea/execution.hpp"
#include "fovea/platform.hpp"
#include "fovea/problem.hpp"

namespace fovea {

// Who asks.
struct RoleQuery {
  std::string role = "self";
  std::string category;
  PolicyQuery policy;
};

// One backend that may be tried, in order.
struct Candidate {
  BackendName backend;
  const AttentionSpec* spec =
      nullptr;            // the spec that applies to it; null for the platform's own choice
  PolicyVerdict verdict;  // refused by policy when it has reasons
};

// The ordered list for one role. `candidates` includes entries that the policy refuses, with their
// reasons.
struct Selection {
  std::string role;
  std::string category;
  std::string source;                   // the config entry's text, or "platform default"
  const AttentionSpec* spec = nullptr;  // null: platform default
  std::vector<Candidate> candidates;
};

enum class TrailVerdict : uint8_t { selected, rejected, not_tried };
FOVEA_API std::string_view name(TrailVerdict verdict) noexcept;

struct TrailEntry {
  BackendName backend;
  TrailVerdict verdict = TrailVerdict::not_tried;
  std::vector<Reason> reasons;
};

// What was decided for one problem. `report.support == unsupported` when nothing can run.
struct Decision {
  BackendName backend;
  const AttentionSpec* spec = nullptr;
  std::string source;
  // As the backend is asked: a dense one that stands in for a sparse one reads every key.
  Problem problem;
  ExecutionPathResult report;
  std::vector<TrailEntry> trail;
  std::vector<Reason>
      assumed;  // facts that the policy took for granted; empty when nothing can run
  std::shared_ptr<const Backend> implementation;
  std::optional<Fallback> fallback;  // under prefer: the named backend that was passed over
  std::optional<BackendName>
      nearest;  // when nothing can run: one that could, if the user asked for it
};

// Resolves roles and decides problems for one platform. Keeps the two caches; thread-safe. The
// config must outlive the selector and stay unchanged.
class Selector {
 public:
  FOVEA_API Selector(std::shared_ptr<const Platform> platform, const AttentionConfig& config);
  FOVEA_API ~Selector();
  Selector(const Selector&) = delete;
  Selector& operator=(const Selector&) = delete;

  // Exact role > category > default > platform. One entry under require; the named backend, then
  // the platform's list, under prefer; the platform's list when nothing is configured. Logs once
  // per (role, category, backend, source).
  FOVEA_API Selection select(const RoleQuery& query) const;

  // Takes the first candidate that resolves to supported or unmigrated. Never passes over an
  // unmigrated one for a later supported one. The result always has the full trail.
  FOVEA_API std::shared_ptr<const Decision> decide(const RoleQuery& query, const Problem& problem,
                                                   const ExecutionContext& context) const;

  FOVEA_API const Platform& platform() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// What can be said of a backend before a layer exists: unsupported with the policy's reasons, or
// unmigrated for eager use, whatever the caller claims of kernel, dtype and masks. Never supported:
// that takes the kernel, the problem and the metadata (Attention::resolve_execution_path). Pure;
// thread-safe.
FOVEA_API ExecutionPathResult resolve_capabilities(BackendName backend,
                                                   const ExecutionContext& context);

// The error of a decision that cannot run: who refused, what was asked, what is accepted, what to
// do, with the nearest backend that can. Code unsupported, not_built or not_available.
FOVEA_API Error refusal(const Decision& decision, const RoleQuery& query, const Problem& problem);

}  // namespace fovea
