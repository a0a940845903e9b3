// Head sizes of queries and values that validation runs hold.
#pragma once

#include <cstdint>

namespace fovea::validation {

struct HeadSizes {
  int64_t query;
  int64_t value;

  bool operator==(const HeadSizes&) const = default;
};

inline constexpr HeadSizes kDenseHeads[] = {{32, 32},   {64, 64},   {80, 48},  {96, 96},
                                            {128, 128}, {192, 128}, {256, 256}};
inline constexpr HeadSizes kSparseHeads[] = {{64, 64}, {80, 48}, {96, 96}, {128, 128}};

}  // namespace fovea::validation
