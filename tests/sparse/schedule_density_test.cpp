#include "fovea/schedule_density.hpp"

#include <gtest/gtest.h>

#include "fovea/sparse.hpp"

namespace fovea {
namespace {

Problem wan() { return parse_problem("bf16 b1 h40 s75600 d128").value(); }
constexpr VideoShape kVideo{21, 3600};

AttentionConfig radial() {
  AttentionConfig config;
  AttentionSpec& spec = config.default_spec.emplace();
  spec.backend = backend::RADIAL_ATTN;
  spec.radial.emplace().dense_timesteps = 12;
  spec.radial->dense_layers = 1;
  return config;
}

TEST(ScheduleDensity, OfRadialStepsAndLayers) {
  const AttentionConfig config = radial();
  EXPECT_NEAR(*spec_density(&*config.default_spec, wan(), kVideo), 0.3986, 5e-5);
  const ScheduleMatrix matrix =
      ScheduleMatrix::build(config, nullptr, {"self", "", 40, 40, {}}).value();
  const ScheduleDensity density = schedule_density(matrix, wan(), kVideo);
  EXPECT_EQ(density.cells, 1600);
  EXPECT_EQ(density.sparse_cells, 28 * 39);
  ASSERT_EQ(density.areas.size(), 3U);
  EXPECT_EQ(density.areas[0].density, 1.0);
  EXPECT_EQ(density.areas[1].density, 1.0);
  EXPECT_NEAR(*density.areas[2].density, 0.3986, 5e-5);
  EXPECT_NEAR(*density.mean, 1 - 28.0 * 39 / 1600 * (1 - 0.3986), 1e-4);
  EXPECT_EQ(density.text(),
            "sparse on 1092 of 1600 steps x layers, 0.5895 of the blocks: up to 1.7 times faster");
}

TEST(ScheduleDensity, IsNotMadeUp) {
  const AttentionConfig config = radial();
  EXPECT_EQ(spec_density(&*config.default_spec, wan(), {}), std::nullopt);
  EXPECT_EQ(spec_density(&*config.default_spec, wan(), {22, 3600}), std::nullopt);
  const ScheduleMatrix matrix =
      ScheduleMatrix::build(config, nullptr, {"self", "", 40, 40, {}}).value();
  EXPECT_EQ(schedule_density(matrix, wan(), {}).text(), "sparse on 1092 of 1600 steps x layers");
  EXPECT_EQ(spec_density(nullptr, wan(), kVideo), 1.0);
  AttentionSpec spec;
  EXPECT_EQ(spec_density(&spec, wan(), kVideo), 1.0);
  spec.backend = backend::BLOCK_SPARSE_ATTN;
  spec.block_sparse.emplace().selection = "mask";
  EXPECT_EQ(spec_density(&spec, wan(), kVideo), std::nullopt);
}

TEST(ScheduleDensity, OfChosenBlocks) {
  AttentionSpec spec;
  spec.backend = backend::SPARGE_ATTN;
  EXPECT_EQ(spec_density(&spec, wan(), {}), 120.0 / 591);
  spec.block_sparse.emplace().sparsity = 0;
  EXPECT_EQ(spec_density(&spec, wan(), {}), 1.0);
}

}  // namespace
}  // namespace fovea
