// The files of data/, which the build copies into the library.
#pragma once

#include <span>
#include <string_view>

namespace fovea::platform {

struct PresetFile {
  std::string_view path;  // "data/models/wan2.1-t2v-14b.json"
  std::string_view text;  // JSON
};

// In the order in which presets are listed. Static storage.
std::span<const PresetFile> device_files() noexcept;
std::span<const PresetFile> model_files() noexcept;

}  // namespace fovea::platform
