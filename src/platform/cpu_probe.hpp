// Which instruction set CPU kernels use on this machine.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "fovea/error.hpp"
#include "src/simd/cpu_features.hpp"

namespace fovea::platform {

// "generic, avx2, ..." for messages.
std::string isa_list();

// The set to use where the best one is `available`: that one, or `wanted` when it is given. Errors
// invalid_argument: an unknown name lists the accepted ones; a set that the machine lacks names
// what it has.
Result<simd::Isa> choose_isa(simd::Isa available, std::optional<std::string_view> wanted);

}  // namespace fovea::platform
