#include "src/select/plan_cache.hpp"

#include <utility>

namespace fovea {
namespace {

constexpr size_t kMaxPlans = 1024;
// Of these, plans that hold the lists of a caller's mask in device memory.
constexpr size_t kMaxMaskPlans = 8;

}  // namespace

PlanKey plan_key(const NormalForm& form, const ExecutionContext& context) {
  return {form.problem,
          context.mask_mode,
          context.packing_mode,
          context.kv_cache_dtype,
          context.host_documents,
          context.host_lengths,
          context.npu_attn_varlen,
          context.sparse_state,
          context.scheduled_dense,
          context.prepared,
          {context.block_mask},
          context.laser_input_scale,
          context.protected_kv_prefix,
          context.timestep,
          context.video_layout};
}

std::optional<PlannedCall> PlanCache::find(const PlanKey& key, uint64_t epoch) {
  const std::lock_guard lock(mutex_);
  const auto found = plans_.find(key);
  if (found == plans_.end() || found->second.epoch != epoch) return std::nullopt;
  if (key.block_mask.mask != nullptr) found->second.last_use = ++uses_;
  return found->second;
}

void PlanCache::insert(PlanKey key, PlannedCall call) {
  PlannedCall dropped;  // its memory is freed after the lock
  const std::lock_guard lock(mutex_);
  if (plans_.size() >= kMaxPlans) plans_.clear();
  if (key.block_mask.mask != nullptr) {
    dropped = make_room_for_mask();
    call.last_use = ++uses_;
  }
  plans_[std::move(key)] = std::move(call);
}

// Returns the plan with a caller's mask that was used longest ago, if it has to go.
PlannedCall PlanCache::make_room_for_mask() {
  size_t count = 0;
  auto oldest = plans_.end();
  for (auto at = plans_.begin(); at != plans_.end(); ++at) {
    if (at->first.block_mask.mask == nullptr) continue;
    ++count;
    if (oldest == plans_.end() || at->second.last_use < oldest->second.last_use) oldest = at;
  }
  PlannedCall dropped;
  if (count < kMaxMaskPlans) return dropped;
  dropped = std::move(oldest->second);
  plans_.erase(oldest);
  return dropped;
}

}  // namespace fovea
