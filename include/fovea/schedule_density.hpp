// How much of the work of a run a sparse schedule leaves.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fovea/config.hpp"
#include "fovea/error.hpp"
#include "fovea/problem.hpp"
#include "fovea/schedule.hpp"

namespace fovea {

// A video whose tokens are frames in order; text may follow it. Frames 0: not known.
struct VideoShape {
  int64_t frames = 0;
  int64_t tokens_per_frame = 0;
};

// The share of key blocks that a spec keeps in its sparse steps. Nothing when it is not known
// before the call: a pattern without its video or one that does not fit, blocks that the caller
// names. 1 for a dense spec; 1 - sparsity for block_topk when problem.seq_kv is 0. Builds the mask
// of a video pattern. Thread-safe.
FOVEA_API std::optional<double> spec_density(const AttentionSpec* spec, const Problem& problem,
                                             const VideoShape& video);

// A rectangle of steps and layers, ends included, and the share of key blocks that it keeps.
struct AreaDensity {
  MatrixArea area;
  std::optional<double> density;
};

// Over all steps and layers of a run.
struct ScheduleDensity {
  std::vector<AreaDensity> areas;
  int64_t cells = 0;
  int64_t sparse_cells = 0;
  // The mean over all cells; its inverse bounds the speed-up. Nothing when some cell is not known.
  std::optional<double> mean;

  // "sparse on 1092 of 1200 steps x layers, 0.4527 of the blocks: up to 2.21 times faster".
  FOVEA_API std::string text() const;
};

// The areas of `matrix`, each of the problem's calls. Points into the matrix.
FOVEA_API ScheduleDensity schedule_density(const ScheduleMatrix& matrix, const Problem& problem,
                                           const VideoShape& video);

}  // namespace fovea
