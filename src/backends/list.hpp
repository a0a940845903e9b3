// The one ordered list of in-tree backends.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "fovea/backend.hpp"

namespace fovea::backends {

struct BackendEntry {
  std::string_view path;  // "builtin:NAME"
  std::shared_ptr<const Backend> (*make)();
};

// Static storage.
std::span<const BackendEntry> backend_list() noexcept;

}  // namespace fovea::backends
