// What explain and explain_schedule share.
#pragma once

#include "fovea/explain.hpp"

namespace fovea::explain_entry {

// The decision of `selector` for one role as an entry.
ExplainEntry make(const Selector& selector, const ExplainQuery& query,
                  const ExecutionContext& context);

// Whether the entry makes the whole explanation a refusal: it cannot run and nothing may stand in.
bool refused(const ExplainEntry& entry) noexcept;

}  // namespace fovea::explain_entry
