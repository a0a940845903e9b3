// The problems of a validation run (docs/validation).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fovea/backend_name.hpp"
#include "fovea/device_facts.hpp"
#include "fovea/metadata.hpp"

namespace fovea::validation {

inline constexpr std::string_view kReplay = "replay";

struct Case {
  std::string kind;     // as in validation_kinds(), or "replay"
  std::string problem;  // a problem string that asks for the LSE
  AttentionMetadata metadata;
};

// Dense problems, or for the names of sparse attention sparse ones: bf16 with up to 1,024 tokens,
// of lengths that are no multiples of a block.
std::vector<Case> validation_cases(BackendName backend, const DeviceFacts& facts);

}  // namespace fovea::validation
