#include <gtest/gtest.h>

#include <limits>

#include "fovea/schedule.hpp"
#include "tests/config/config_matchers.hpp"

namespace fovea {
namespace {

AttentionSchedule schedule(std::string_view json) {
  auto out = parse_schedule(json);
  EXPECT_TRUE(out) << out.error().message;
  return out.value_or(AttentionSchedule{});
}

std::string fault(const Result<ScheduleMatrix>& matrix) {
  return matrix ? "accepted" : matrix.error().message;
}

MatrixQuery query(int64_t steps, int64_t layers, std::vector<double> sigmas = {}) {
  return {"self", "", steps, layers, std::move(sigmas)};
}

// One character per cell: S sparse, d dense under a sparse spec, . dense backend, - platform.
std::string picture(const ScheduleMatrix& matrix) {
  std::string out;
  for (int64_t step = 0; step < matrix.steps(); ++step) {
    for (int64_t layer = 0; layer < matrix.layers(); ++layer) {
      const ScheduleCell& cell = matrix.at(step, layer);
      out += cell.sparse()                          ? 'S'
             : cell.spec == nullptr                 ? '-'
             : cell.dense == DenseCause::not_sparse ? '.'
                                                    : 'd';
    }
    out += '\n';
  }
  return out;
}

TEST(ScheduleMatrix, shows_every_step_and_layer) {
  const auto base = parsed(R"({"default": {"backend": "RADIAL_ATTN",
      "radial": {"dense_timesteps": 2, "dense_layers": 1}}})");
  const auto plan = schedule(R"({"profiles": {"last": "FLASH_ATTN", "auto": {}},
      "steps": [{"start": 3, "end": 4, "profile": "last"}, {"start": 5, "end": null, "profile": "auto"}],
      "layers": [{"start": 3, "end": 4, "profile": "last"}]})");
  const auto matrix = ScheduleMatrix::build(base, &plan, query(6, 4));
  ASSERT_TRUE(matrix) << matrix.error().message;
  EXPECT_EQ(
      "ddd.\n"
      "ddd.\n"
      "dSS.\n"
      "....\n"
      "dSS.\n"
      "---.\n",
      picture(*matrix));
  EXPECT_EQ(3u, matrix->specs().size());
}

TEST(ScheduleMatrix, without_a_schedule_it_shows_the_base) {
  const auto base = parsed(R"({"default": {"backend": "RAINFUSION_ATTN",
      "block_sparse": {"start_step": 1, "end_step": 1, "skip_layers": "1"}}})");
  const auto matrix = ScheduleMatrix::build(base, nullptr, query(4, 3));
  ASSERT_TRUE(matrix) << matrix.error().message;
  EXPECT_EQ("ddd\nSdS\nSdS\nddd\n", picture(*matrix));
  EXPECT_EQ("--\n", picture(*ScheduleMatrix::build({}, nullptr, query(1, 2))));
}

TEST(ScheduleMatrix, areas_cover_every_cell_once) {
  const auto base = parsed(R"({"default": {"backend": "RADIAL_ATTN",
      "radial": {"dense_timesteps": 2, "dense_layers": 1}}})");
  const auto plan = schedule(R"({"profiles": {"a": "FLASH_ATTN"},
      "layers": [{"start": 2, "end": 3, "profile": "a"}]})");
  const auto matrix = ScheduleMatrix::build(base, &plan, query(7, 5));
  ASSERT_TRUE(matrix);
  const auto areas = matrix->areas();
  EXPECT_EQ(3u + 4u, areas.size()) << "steps 0-1: 0-1, 2, 3-4; steps 2-6: 0, 1, 2, 3-4";
  std::vector<int> covered(35);
  for (const MatrixArea& area : areas) {
    for (int64_t step = area.first_step; step <= area.last_step; ++step) {
      for (int64_t layer = area.first_layer; layer <= area.last_layer; ++layer) {
        ++covered[static_cast<size_t>(step * 5 + layer)];
        EXPECT_EQ(area.cell, &matrix->at(step, layer));
      }
    }
  }
  EXPECT_EQ(std::vector<int>(35, 1), covered);
}

TEST(ScheduleMatrix, equal_profiles_share_one_spec) {
  const auto base = parsed(R"({"default": "FA3"})");
  const auto plan =
      schedule(R"({"profiles": {"a": "FLASH_ATTN_3", "b": {"default": {"backend": "fa3"}},
      "c": "FA2"}, "steps": [{"start": 0, "end": 1, "profile": "a"},
      {"start": 1, "end": 2, "profile": "b"}, {"start": 2, "end": 3, "profile": "c"}]})");
  const auto matrix = ScheduleMatrix::build(base, &plan, query(4, 1));
  ASSERT_TRUE(matrix);
  EXPECT_EQ(2u, matrix->specs().size());
}

TEST(ScheduleMatrix, a_sparse_spec_that_never_is_refuses_or_warns) {
  const char* text = R"({"default": {"backend": "RADIAL_ATTN", "strictness": "STRICT",
      "radial": {"dense_timesteps": 40}}})";
  const auto with = [&](const char* strictness) {
    std::string out = text;
    return parsed(out.replace(out.find("STRICT"), 6, strictness));
  };
  const auto strict = with("require");
  EXPECT_EQ("accepted", fault(ScheduleMatrix::build(strict, nullptr, query(41, 1))));
  const auto refusal = ScheduleMatrix::build(strict, nullptr, query(40, 1));
  EXPECT_EQ(
      "schedule: attention_config.default: RADIAL_ATTN would run dense in every one of 40 steps "
      "and "
      "1 layers; lower its dense steps or layers, or name a dense backend",
      fault(refusal));
  const auto loose = with("prefer");
  const auto warned = ScheduleMatrix::build(loose, nullptr, query(40, 1));
  ASSERT_TRUE(warned);
  ASSERT_EQ(1u, warned->warnings().size());
  EXPECT_HAS(warned->warnings()[0], "attention_config.default: RADIAL_ATTN would run dense");
  EXPECT_TRUE(ScheduleMatrix::build(loose, nullptr, query(41, 1))->warnings().empty());
  const auto zero =
      parsed(R"({"default": {"backend": "SPARGE_ATTN", "block_sparse": {"sparsity": 0}}})");
  EXPECT_HAS(fault(ScheduleMatrix::build(zero, nullptr, query(4, 1))),
             "sparsity 0 leaves no block out");
}

TEST(ScheduleMatrix, the_schedules_dense_steps_count_too) {
  const auto base =
      parsed(R"({"default": {"backend": "RADIAL_ATTN", "radial": {"dense_timesteps": 0}}})");
  const auto plan = schedule(R"({"dense_first_steps": 5})");
  EXPECT_HAS(fault(ScheduleMatrix::build(base, &plan, query(5, 2))),
             "would run dense in every one");
  EXPECT_EQ("accepted", fault(ScheduleMatrix::build(base, &plan, query(6, 2))));
}

TEST(ScheduleMatrix, skip_layers_must_exist) {
  const auto base = parsed(R"({"default": {"backend": "SPARGE_ATTN",
      "block_sparse": {"skip_layers": "0,38"}}})");
  EXPECT_EQ("accepted", fault(ScheduleMatrix::build(base, nullptr, query(2, 39))));
  EXPECT_HAS(fault(ScheduleMatrix::build(base, nullptr, query(2, 38))),
             "block_sparse.skip_layers names layer 38, but there are 38 layers");
}

TEST(ScheduleMatrix, sigmas_are_needed_and_checked) {
  const auto plan = schedule(R"({"profiles": {"a": "FA2"},
      "sigma": [{"low": 0.5, "high": 1, "profile": "a"}]})");
  const AttentionConfig base;
  EXPECT_HAS(fault(ScheduleMatrix::build(base, &plan, query(3, 1))),
             "sigma: the schedule has sigma windows; give the 3 sigmas of the run, found 0");
  EXPECT_HAS(fault(ScheduleMatrix::build(base, &plan, query(2, 1, {1.0, 1.5}))),
             "sigma[1]: expected a number in [0, 1], found 1.5");
  EXPECT_HAS(fault(ScheduleMatrix::build(base, &plan,
                                         query(1, 1, {std::numeric_limits<double>::quiet_NaN()}))),
             "sigma[0]: expected a number in [0, 1], found nan");
  const auto matrix = ScheduleMatrix::build(base, &plan, query(3, 1, {1.0, 0.5, 0.25}));
  ASSERT_TRUE(matrix) << matrix.error().message;
  EXPECT_EQ(".\n.\n-\n", picture(*matrix));
}

TEST(ScheduleMatrix, absurd_sizes_are_refused) {
  const AttentionConfig base;
  EXPECT_HAS(fault(ScheduleMatrix::build(base, nullptr, query(0, 1))),
             "schedule: number of steps: expected at least 1, found 0");
  EXPECT_HAS(fault(ScheduleMatrix::build(base, nullptr, query(1, -1))), "number of layers");
  EXPECT_HAS(
      fault(ScheduleMatrix::build(base, nullptr, query(std::numeric_limits<int64_t>::max(), 4096))),
      "is more than 1000000");
  EXPECT_HAS(fault(ScheduleMatrix::build(base, nullptr, query(1001, 1000))), "is more than");
}

TEST(ScheduleMatrix, a_schedule_that_does_not_fit_is_refused) {
  const auto plan = schedule(R"({"profiles": {"a": "FA2"},
      "steps": [{"start": 0, "end": 9, "profile": "a"}]})");
  EXPECT_HAS(fault(ScheduleMatrix::build({}, &plan, query(8, 1))), "ranges are not clipped");
}

}  // namespace
}  // namespace fovea
