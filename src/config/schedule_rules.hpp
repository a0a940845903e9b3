// Checks of a schedule that readers and hand-made schedules share.
#pragma once

#include <string_view>

#include "fovea/schedule.hpp"
#include "src/config/problems.hpp"

namespace fovea::config {

// [A-Za-z][A-Za-z0-9_-]*
bool valid_profile_name(std::string_view name) noexcept;

// Order, overlap, bounds and known profiles; profile configurations are checked elsewhere.
void check_schedule(const AttentionSchedule& schedule, Problems& problems);
// Nothing reaches beyond the run.
void check_fit(const AttentionSchedule& schedule, int64_t steps, int64_t layers,
               Problems& problems);

}  // namespace fovea::config
