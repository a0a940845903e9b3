// The demo's result as one picture.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/fovea/measure.hpp"

namespace fovea::demo {

// Tokens of one kind that follow each other, e.g. the patches of one video frame.
struct Segment {
  std::string label;  // may be empty
  int64_t length = 0;
};

// How every query spreads its attention over the keys: rows x columns, of one head.
struct AttentionMap {
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<double> weights;
  std::vector<bool> hidden;  // keys that the mask hides
  std::vector<Segment> row_segments;
  std::vector<Segment> column_segments;
};

// One captured call.
struct Panel {
  std::string title;
  std::string subtitle;
  std::string backend;
  std::string path;
  std::string note;  // why this backend, in a few words
  AttentionMap map;
  double rel_l2 = 0;
  double tolerance = 0;
  bool pass = false;
  cli::Timing timing;
  double tflops = 0;
};

std::string draw(const std::vector<Panel>& panels, const std::string& subtitle);

}  // namespace fovea::demo
