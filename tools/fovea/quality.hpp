// What a sparse path leaves out, measured against dense attention on the same tensors.
#pragma once

#include <string>
#include <vector>

#include "tools/fovea/layer_run.hpp"

namespace fovea::cli {

// `run` is a sparse call whose outputs are in place; they are left as they are. Runs the call once
// more and FLASH_ATTN once, both with their log-sum-exp: the mass of a row that is kept is
// exp(lse_sparse - lse_dense). Errors: those of the layers; out_of_memory.
Result<QualityReport> measure_quality(const LayerRun& run);

// One value of a sweep: the parameter of the pattern and what came of it.
struct SweepPoint {
  std::string value;
  QualityReport quality;
};

// The mass kept, the similarity and the error over the density, as an SVG document.
std::string quality_plot(const std::string& parameter, const std::vector<SweepPoint>& points,
                         const std::string& caption);

}  // namespace fovea::cli
