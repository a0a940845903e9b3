// Packages that provide backends, and how to install them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fovea/device_facts.hpp"

namespace fovea::platform {

struct Package {
  std::string_view id;       // how policy rows call it
  std::string_view fact;     // the fact that tells of it; empty: taken to be there
  std::string_view name;     // printed by receipts, and the end of the registry path
  std::string_view install;  // one command
  std::string_view symbol;   // a part of the package that is checked on its own; else empty
  std::string_view part_of;  // the fact of the package that holds the symbol
};

// A row calls a package by an id that exists; a test goes through all rows.
const Package& package(std::string_view id) noexcept;

enum class PackageState : uint8_t { present, missing, broken };

// broken: the package is there but lacks the symbol, or is stated to be broken.
PackageState state(const Package& package, const DeviceFacts& facts) noexcept;

// "flash_attn 2.8.0"; without the version when it is not stated.
std::string describe(const Package& package, const DeviceFacts& facts);

// Why a broken package is of no use: "0.6.18 without SYMBOL", "installed but broken (CAUSE)".
std::string fault(const Package& package, const DeviceFacts& facts);

// What messages ask for: "flash_attn", or "flashinfer with SYMBOL".
std::string wanted(const Package& package);

}  // namespace fovea::platform
