// A block mask as a picture: one pixel a block.
#pragma once

#include <string>
#include <string_view>

#include "fovea/sparse.hpp"

namespace fovea::cli {

// An SVG document of the first batch and head.
std::string mask_picture(const BlockMask& mask, std::string_view caption);

}  // namespace fovea::cli
