// A platform owns compatibility policy: it refuses an explicit choice by facts, or orders the
// automatic ones.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/backend_name.hpp"
#include "fovea/device_facts.hpp"
#include "fovea/error.hpp"
#include "fovea/execution.hpp"

namespace fovea {

// Everything a policy may read besides the facts. It is also the cache key.
struct PolicyQuery {
  int64_t head_dim = 0;       // 0: unknown, geometry is not judged
  bool mask_free = false;     // the model promises that no mask will be passed
  std::string provider = {};  // "fovea", "cudnn" or "package"; empty: any

  bool operator==(const PolicyQuery&) const = default;
};

// One backend as the policy sees it. Empty reasons: may be used.
struct PolicyVerdict {
  BackendName backend;
  std::string provider;  // "fovea", "cudnn", "package flash_attn 2.8.0"
  // Registry path of the implementation: "builtin:cpu_flash", "package:flash_attn". Empty: the
  // policy knows none, because it refuses the name or the name was added at run time.
  std::string path;
  std::vector<Reason> reasons;
  // Of a verdict without reasons: facts that were not given or not understood, and what they are
  // taken to be.
  std::vector<Reason> assumed = {};
};

// Immutable and thread-safe.
class Platform {
 public:
  virtual ~Platform() = default;
  virtual const DeviceFacts& facts() const noexcept = 0;
  // Judges an explicit choice. All reasons are collected.
  virtual PolicyVerdict judge(BackendName backend, const PolicyQuery& query) const = 0;
  // The platform's order of preference when nothing is chosen, refused entries included with their
  // reasons.
  virtual std::vector<PolicyVerdict> preference(const PolicyQuery& query) const = 0;
};

// The in-tree policy for these facts. Never null. Thread-safe.
FOVEA_API std::shared_ptr<const Platform> make_platform(DeviceFacts facts);

// Whether a name can be used here, and what would make it usable.
struct Availability {
  enum class State : uint8_t {
    available,
    not_built,
    wrong_device,
    package_missing,
    package_broken
  };
  BackendName backend;
  State state = State::not_built;
  std::string provider;
  std::string cause;    // one sentence, empty when available
  std::string install;  // what to install, empty when nothing would help
};
FOVEA_API std::string_view name(Availability::State state) noexcept;

// Judges the name for the platform's facts, whatever is registered at run time: a name that only a
// package provides is not_built until something is registered behind it. Thread-safe.
FOVEA_API Availability availability(BackendName backend, const Platform& platform);

// The platforms a built-in name has a policy row for, in the order of PlatformId. Thread-safe.
FOVEA_API std::vector<PlatformId> platforms_of(BackendName backend);

// The formats of aiter_quant that AITER_QUANT_ATTN runs on this device; empty when it cannot run.
// Thread-safe; static storage behind the views.
FOVEA_API std::vector<std::string_view> aiter_formats(const DeviceFacts& facts);

}  // namespace fovea
