// Where the videos of a self-attention sequence lie.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "fovea/error.hpp"

namespace fovea {

// Patches of a video: frames, rows, columns.
struct VideoGrid {
  int64_t frames = 0;
  int64_t height = 0;
  int64_t width = 0;

  bool operator==(const VideoGrid&) const = default;
};

enum class VideoRole : uint8_t { target, reference };
FOVEA_API std::string_view name(VideoRole role) noexcept;

// The tokens of one video among several: grid.frames * height * width of them, from `begin` on.
struct VideoSpan {
  int64_t begin = 0;
  VideoGrid grid;
  VideoRole role = VideoRole::target;

  bool operator==(const VideoSpan&) const = default;
};

// How the tokens of a self-attention sequence lie: [prefix | video | padding]. Publishing it states
// that a mask, if there is one, hides padding behind the used tokens only.
struct VideoLayout {
  int64_t prefix_length = 0;
  // One video: used tokens = prefix_length + frames * height * width, and `spans` stays empty.
  std::optional<VideoGrid> grid;
  // Several videos: `used_length` tokens and where each video lies in them, in order.
  int64_t used_length = 0;
  std::vector<VideoSpan> spans;

  bool operator==(const VideoLayout&) const = default;
};

}  // namespace fovea
