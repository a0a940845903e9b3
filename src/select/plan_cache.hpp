// The plans that a layer has made for one device.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "fovea/backend.hpp"
#include "fovea/execution.hpp"
#include "fovea/metadata.hpp"
#include "fovea/receipt.hpp"
#include "fovea/sparse.hpp"

namespace fovea {

// The block mask of a call on a device, whose plan holds the lists; equal by contents.
struct CallMask {
  std::shared_ptr<const BlockMask> mask;

  bool operator==(const CallMask& other) const {
    if (mask == other.mask) return true;
    return mask != nullptr && other.mask != nullptr && *mask == *other.mask;
  }
};

// What a plan depends on besides the layer's facts and configuration.
struct PlanKey {
  Problem problem;
  MaskMode mask_mode = MaskMode::none;
  PackingMode packing_mode = PackingMode::none;
  std::string kv_cache_dtype;
  bool host_documents = false;
  bool host_lengths = false;
  bool npu_attn_varlen = false;
  bool sparse_state = false;
  std::optional<BackendName> scheduled_dense;
  std::string prepared;
  CallMask block_mask;
  std::optional<double> laser_input_scale;
  int64_t protected_kv_prefix = 0;
  std::optional<double> timestep;
  std::optional<VideoLayout> video_layout;

  bool operator==(const PlanKey&) const = default;
};
PlanKey plan_key(const NormalForm& form, const ExecutionContext& context);

// A plan with the receipt its runs hand out: the backend's own, plus what selection added.
struct PlannedCall {
  std::shared_ptr<const Plan> plan;
  std::shared_ptr<const Receipt> receipt;
  uint64_t epoch = 0;          // registry_epoch() of the decision
  bool without_lists = false;  // a dense backend stands in and takes no block lists
  uint64_t last_use = 0;       // of a plan with a caller's mask
};

// Thread-safe.
class PlanCache {
 public:
  // Nothing when there is none or it is of another epoch.
  std::optional<PlannedCall> find(const PlanKey& key, uint64_t epoch);
  // May drop others; of those with a caller's mask the few used last stay.
  void insert(PlanKey key, PlannedCall call);

 private:
  struct Hash {
    size_t operator()(const PlanKey& key) const noexcept { return hash_value(key.problem); }
  };
  PlannedCall make_room_for_mask();

  std::mutex mutex_;
  std::unordered_map<PlanKey, PlannedCall, Hash> plans_;
  uint64_t uses_ = 0;  // of plans with a caller's mask
};

}  // namespace fovea
