// Which packages the host program has bound: what no probe of a device can find.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace fovea {

// Thread-safe, all of them. `version` is kept as far as it is a release number ("4.0.0b36" is
// 4.0.0); "unknown" when it starts with none.
void note_bound_package(std::string_view package, std::string_view version);
void forget_bound_package(std::string_view package);
// Release numbers by package.
std::map<std::string, std::string, std::less<>> bound_packages();
// Changes with every note.
uint64_t bound_packages_epoch() noexcept;

}  // namespace fovea
