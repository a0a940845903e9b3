#include "fovea/schedule.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "tests/config/config_matchers.hpp"

namespace fovea {
namespace {

AttentionSchedule schedule(std::string_view json) {
  auto out = parse_schedule(json);
  if (out) return *out;
  ADD_FAILURE() << out.error().message;
  return {};
}

std::string fault(std::string_view json) {
  const auto out = parse_schedule(json);
  if (!out) {
    EXPECT_EQ(ErrorCode::invalid_config, out.error().code);
    return out.error().message;
  }
  ADD_FAILURE() << "accepted " << to_json(*out);
  return {};
}

std::string fault(const Status& status) { return status ? "accepted" : status.error().message; }

// A schedule with profiles a and b and the given lists.
std::string with(const std::string& lists) {
  return R"({"profiles": {"a": "FLASH_ATTN", "b": {"default": "TORCH_SDPA"}}, )" + lists + "}";
}

TEST(Schedule, every_key_is_read_and_written_back) {
  const auto full = schedule(R"({
      "profiles": {"dense": "FLASH_ATTN",
                   "fast-1": {"per_role": {"self": {"backend": "RADIAL_ATTN"}}}},
      "steps": [{"start": 0, "end": 10, "profile": "dense"},
                {"start": 12, "end": null, "profile": "fast-1"}],
      "layers": [{"start": 1, "end": 2, "profile": "dense"}],
      "dense_first_steps": 2, "dense_first_layers": 1})");
  ASSERT_EQ(2u, full.steps.size());
  EXPECT_EQ((StepRange{0, 10, "dense"}), full.steps[0]);
  EXPECT_EQ((StepRange{12, std::nullopt, "fast-1"}), full.steps[1]);
  EXPECT_EQ((LayerRange{1, 2, "dense"}), full.layers[0]);
  EXPECT_EQ(2, full.dense_first_steps);
  EXPECT_EQ(1, full.dense_first_layers);
  EXPECT_EQ(backend::FLASH_ATTN, full.profiles.at("dense").default_spec->backend);
  EXPECT_EQ(full, schedule(to_json(full)));
  const auto sigma = schedule(with(R"("sigma": [{"low": 0.25, "high": 1, "profile": "a"}])"));
  EXPECT_EQ((SigmaWindow{0.25, 1, "a"}), sigma.sigma.at(0));
  EXPECT_EQ(sigma, schedule(to_json(sigma)));
  EXPECT_EQ(AttentionSchedule{}, schedule("{}"));
  EXPECT_EQ("{}", to_json(AttentionSchedule{}));
}

TEST(Schedule, range_grammar) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("steps": 3)", "schedule: steps: expected a list, found 3"},
      {R"("steps": [3])", "steps[0]: expected a map with the keys start, end, profile, found 3"},
      {R"("steps": [{"start": 0, "profile": "a"}])", "steps[0]: lacks end; every entry has"},
      {R"("steps": [{"start": 0, "end": 1, "profile": "a", "x": 1}])",
       "steps[0].x: unknown key; known here: start, end, profile"},
      {R"("steps": [{"start": true, "end": 1, "profile": "a"}])",
       "steps[0].start: expected an integer of at least 0, found true"},
      {R"("steps": [{"start": 0.5, "end": 1, "profile": "a"}])", "steps[0].start: expected"},
      {R"("steps": [{"start": -1, "end": 1, "profile": "a"}])", "steps[0].start: expected"},
      {R"("steps": [{"start": null, "end": 1, "profile": "a"}])", "steps[0].start: expected"},
      {R"("steps": [{"start": 0, "end": "1", "profile": "a"}])",
       "steps[0].end: expected an integer of at least 0, found the string '1'"},
      {R"("steps": [{"start": 1, "end": 1, "profile": "a"}])",
       "steps[0].end: the range [1, 1) is empty; end must be above start"},
      {R"("steps": [{"start": 0, "end": 1, "profile": 1}])",
       "steps[0].profile: expected the name of a profile, found 1"},
      {R"("steps": [{"start": 0, "end": 1, "profile": "c"}])",
       "steps[0].profile: there is no profile 'c'; known here: a, b"},
      {R"("steps": [{"start": 0, "end": 2, "profile": "a"}, {"start": 1, "end": 3, "profile": "b"}])",
       "steps[1]: starts at 1, inside or before the range [0, 2)"},
      {R"("steps": [{"start": 4, "end": 5, "profile": "a"}, {"start": 0, "end": 1, "profile": "b"}])",
       "steps[1]: starts at 0, inside or before the range [4, 5)"},
      {R"("steps": [{"start": 0, "end": null, "profile": "a"}, {"start": 5, "end": 6, "profile": "b"}])",
       "steps[1]: follows a range without an end; only the last range may be open"},
      {R"("layers": [{"start": 0, "end": 2, "profile": "a"}, {"start": 1, "end": 3, "profile": "b"}])",
       "layers[1]: starts at 1, inside or before the range [0, 2)"},
      {R"("sigma": [{"low": 0.5, "high": 0.5, "profile": "a"}])",
       "sigma[0]: expected 0 <= low < high <= 1, found low 0.5 and high 0.5"},
      {R"("sigma": [{"low": -0.1, "high": 0.5, "profile": "a"}])",
       "sigma[0].low: expected a number in [0, 1], found -0.1"},
      {R"("sigma": [{"low": 0, "high": 1.5, "profile": "a"}])", "sigma[0].high: expected"},
      {R"("sigma": [{"low": 0, "high": true, "profile": "a"}])", "sigma[0].high: expected"},
      {R"("sigma": [{"low": 0, "high": 0.6, "profile": "a"}, {"low": 0.5, "high": 1, "profile": "b"}])",
       "sigma[1]: starts at 0.5, below the end of the window before, 0.6"},
      {R"("steps": [{"start": 0, "end": 1, "profile": "a"}], "sigma": [{"low": 0, "high": 1, "profile": "a"}])",
       "sigma: steps and sigma exclude each other"},
      {R"("dense_first_steps": -1)", "dense_first_steps: expected an integer of at least 0"},
      {R"("dense_first_layers": true)", "dense_first_layers: expected an integer of at least 0"},
      {R"("stepz": [])",
       "stepz: unknown key; known here: profiles, steps, sigma, layers, dense_first_steps, "
       "dense_first_layers; did you mean 'steps'?"},
  };
  for (const auto& [lists, expected] : cases) EXPECT_HAS(fault(with(lists)), expected) << lists;
  EXPECT_HAS(fault("[]"), "the top level: expected a map with keys among profiles, steps");
  EXPECT_HAS(fault("{"), "schedule: not valid JSON");
}

TEST(Schedule, profiles_are_configurations) {
  EXPECT_HAS(fault(R"({"profiles": {"1a": "FLASH_ATTN"}})"),
             "profiles.1a: a profile name is a letter, then letters, digits, '_' and '-'");
  EXPECT_HAS(fault(R"({"profiles": {"": "FLASH_ATTN"}})"), "a profile name is a letter");
  EXPECT_HAS(fault(R"({"profiles": {"a": {"default": "FLASH_ATN"}}})"),
             "profiles.a.default: backend 'FLASH_ATN' is not known");
  EXPECT_HAS(
      fault(R"({"profiles": {"a": {"per_role": {"self": {"backend": "FA3", "quant": {}}}}}})"),
      "profiles.a.per_role.self.quant: FLASH_ATTN_3 does not take quant");
  EXPECT_HAS(fault(R"({"profiles": {"a": {"defualt": "FA3"}}})"),
             "profiles.a.defualt: unknown key");
  EXPECT_HAS(fault(R"({"profiles": {"a": 3}})"), "profiles.a: expected a map");
  EXPECT_HAS(fault(R"({"profiles": []})"), "profiles: expected a map from names to configurations");
  AttentionSchedule by_hand;
  by_hand.profiles["a"].default_spec.emplace().scale = -1;
  EXPECT_HAS(fault(validate(by_hand)), "profiles.a.default: attention spec: scale: expected");
}

TEST(Schedule, nothing_is_clipped) {
  const auto steps = schedule(with(R"("steps": [{"start": 2, "end": 10, "profile": "a"},
                                                {"start": 12, "end": null, "profile": "b"}])"));
  EXPECT_EQ("accepted", fault(validate(steps, 13, 1)));
  EXPECT_HAS(
      fault(validate(steps, 12, 1)),
      "steps[1].start: reaches 12, but there are 12 denoising steps; ranges are not clipped");
  EXPECT_HAS(fault(validate(steps, 9, 1)), "steps[0].end: reaches 10, but there are 9");
  const auto layers = schedule(with(R"("layers": [{"start": 0, "end": 5, "profile": "a"}])"));
  EXPECT_EQ("accepted", fault(validate(layers, 1, 5)));
  EXPECT_HAS(fault(validate(layers, 1, 4)), "layers[0].end: reaches 5, but there are 4 layers");
  const auto dense = schedule(R"({"dense_first_steps": 3, "dense_first_layers": 2})");
  EXPECT_EQ("accepted", fault(validate(dense, 3, 2)));
  EXPECT_HAS(fault(validate(dense, 2, 2)),
             "dense_first_steps: 3 is more than the 2 denoising steps");
  EXPECT_HAS(fault(validate(dense, 3, 1)), "dense_first_layers: 2 is more than the 1 layers");
}

TEST(Schedule, a_request_inherits_disables_or_replaces) {
  const auto base = schedule(with(R"("steps": [{"start": 0, "end": 2, "profile": "a"}],
                                     "dense_first_steps": 4)"));
  const auto applied = [&](std::string_view json) {
    const auto request = parse_schedule_request(json);
    EXPECT_TRUE(request) << request.error().message;
    return apply(base, *request);
  };
  EXPECT_EQ(base, *applied("{}"));
  EXPECT_EQ(base, *applied("null"));
  EXPECT_EQ(base, *applied(R"({"steps": null, "dense_first_steps": null})"));
  EXPECT_TRUE(applied(R"({"steps": []})")->steps.empty());
  EXPECT_EQ((StepRange{1, 3, "b"}),
            applied(R"({"steps": [{"start": 1, "end": 3, "profile": "b"}]})")->steps.at(0));
  EXPECT_EQ(0, applied(R"({"dense_first_steps": 0})")->dense_first_steps);
  EXPECT_EQ(4, applied(R"({"steps": []})")->dense_first_steps);
  const char* sigma = R"({"sigma": [{"low": 0, "high": 1, "profile": "b"}]})";
  EXPECT_HAS(applied(sigma).error().message, "steps and sigma exclude each other");
  EXPECT_TRUE(applied(R"({"steps": [], "sigma": [{"low": 0, "high": 1, "profile": "b"}]})"));
  EXPECT_HAS(applied(R"({"steps": [{"start": 1, "end": 3, "profile": "z"}]})").error().message,
             "there is no profile 'z'");
  EXPECT_HAS(parse_schedule_request(R"({"profiles": {}})").error().message,
             "schedule request: profiles: unknown key; known here: steps, sigma, layers");
}

TEST(Schedule, ranges_are_half_open_and_gaps_use_the_base) {
  const auto base = parsed(R"({"default": "CUDNN_ATTN"})");
  const auto plan = schedule(with(R"("steps": [{"start": 2, "end": 4, "profile": "a"},
                                               {"start": 6, "end": null, "profile": "b"}])"));
  const auto profile = [&](int64_t step) {
    return std::string(schedule_cell(base, &plan, "self", "", {step, 0, {}, {}}).profile);
  };
  const char* expected[] = {"", "", "a", "a", "", "", "b", "b", "b"};
  for (int64_t step = 0; step < 9; ++step) EXPECT_EQ(expected[step], profile(step)) << step;
  const auto cell = schedule_cell(base, &plan, "self", "", {0, 0, {}, {}});
  EXPECT_EQ(backend::CUDNN_ATTN, cell.spec->backend);
  EXPECT_EQ("attention_config.default", cell.source);
  EXPECT_EQ("profile 'b': attention_config.default",
            schedule_cell(base, &plan, "self", "", {6, 0, {}, {}}).source);
}

TEST(Schedule, sigma_windows_are_half_open_except_at_one) {
  const AttentionConfig base;
  const auto plan = schedule(with(R"("sigma": [{"low": 0, "high": 0.5, "profile": "a"},
                                               {"low": 0.75, "high": 1, "profile": "b"}])"));
  const std::pair<double, const char*> cases[] = {{0, "a"},    {0.499, "a"}, {0.5, ""}, {0.74, ""},
                                                  {0.75, "b"}, {0.999, "b"}, {1, "b"}};
  for (const auto& [sigma, expected] : cases) {
    EXPECT_EQ(expected, schedule_cell(base, &plan, "self", "", {0, 0, {}, sigma}).profile) << sigma;
  }
}

TEST(Schedule, profiles_inherit_nothing_from_the_base) {
  const auto base = parsed(R"({"default": "CUDNN_ATTN"})");
  const auto plan = schedule(R"({"profiles": {"only-cross": {"per_role": {"cross": "FA3"}}},
                                 "steps": [{"start": 0, "end": null, "profile": "only-cross"}]})");
  const auto self = schedule_cell(base, &plan, "self", "", {});
  EXPECT_EQ(nullptr, self.spec);
  EXPECT_EQ("profile 'only-cross': platform default", self.source);
  EXPECT_EQ(backend::FLASH_ATTN_3, schedule_cell(base, &plan, "x", "cross", {}).spec->backend);
}

TEST(Schedule, a_layer_range_beats_a_step_range) {
  const auto plan = schedule(with(R"("steps": [{"start": 0, "end": null, "profile": "a"}],
                                     "layers": [{"start": 1, "end": 2, "profile": "b"}])"));
  const AttentionConfig base;
  EXPECT_EQ("a", schedule_cell(base, &plan, "self", "", {3, 0, {}, {}}).profile);
  EXPECT_EQ("b", schedule_cell(base, &plan, "self", "", {3, 1, {}, {}}).profile);
  EXPECT_EQ("a", schedule_cell(base, &plan, "self", "", {3, 2, {}, {}}).profile);
}

TEST(Schedule, dense_steps_count_from_the_first_denoising_step) {
  const auto radial = parsed_default(R"({"default": {"backend": "RADIAL_ATTN",
      "radial": {"dense_timesteps": 3, "dense_layers": 1}}})");
  EXPECT_EQ(DenseCause::first_steps, dense_cause(&radial, 0, 5));
  EXPECT_EQ(DenseCause::first_steps, dense_cause(&radial, 2, 5));
  EXPECT_EQ(DenseCause::none, dense_cause(&radial, 3, 5));
  EXPECT_EQ(DenseCause::first_layers, dense_cause(&radial, 3, 0));
  EXPECT_EQ(DenseCause::none, dense_cause(&radial, 49, 1));
  const auto local = parsed_default(R"({"default": {"backend": "LOCAL_SPARSE_ATTN",
      "local_sparse": {"dense_timesteps": 1}}})");
  EXPECT_EQ(DenseCause::first_steps, dense_cause(&local, 0, 0));
  EXPECT_EQ(DenseCause::none, dense_cause(&local, 1, 0));
}

TEST(Schedule, block_sparse_is_dense_at_both_ends_and_in_skipped_layers) {
  const auto spec = parsed_default(R"({"default": {"backend": "RAINFUSION_ATTN",
      "block_sparse": {"start_step": 2, "end_step": 3, "skip_layers": "0,5"}}})");
  EXPECT_EQ(DenseCause::first_steps, dense_cause(&spec, 1, 1, 10));
  EXPECT_EQ(DenseCause::none, dense_cause(&spec, 2, 1, 10));
  EXPECT_EQ(DenseCause::none, dense_cause(&spec, 6, 1, 10));
  EXPECT_EQ(DenseCause::last_steps, dense_cause(&spec, 7, 1, 10));
  EXPECT_EQ(DenseCause::none, dense_cause(&spec, 7, 1)) << "the last steps are not known";
  EXPECT_EQ(DenseCause::skipped_layer, dense_cause(&spec, 4, 0, 10));
  EXPECT_EQ(DenseCause::skipped_layer, dense_cause(&spec, 4, 5, 10));
}

TEST(Schedule, what_is_not_sparse_stays_dense) {
  EXPECT_EQ(DenseCause::not_sparse, dense_cause(nullptr, 0, 0));
  for (const BackendNameInfo& row : backend_names()) {
    AttentionSpec spec;
    spec.backend = row.name;
    const bool sparse = row.name == backend::SPARGE_ATTN || row.name == backend::FASTVIDEO_VSA ||
                        row.name == backend::RAINFUSION_ATTN || row.name == backend::RADIAL_ATTN ||
                        row.name == backend::LOCAL_SPARSE_ATTN ||
                        row.name == backend::BLOCK_SPARSE_ATTN;
    EXPECT_EQ(sparse, dense_cause(&spec, 40, 0) == DenseCause::none) << row.canonical;
  }
  const auto all_blocks =
      parsed_default(R"({"default": {"backend": "SPARGE_ATTN", "block_sparse": {"sparsity": 0}}})");
  EXPECT_EQ(DenseCause::not_sparse, dense_cause(&all_blocks, 0, 0));
}

TEST(Schedule, the_schedules_own_dense_cells_come_on_top) {
  const auto base = parsed(R"({"default": {"backend": "RADIAL_ATTN",
      "radial": {"dense_timesteps": 1}}})");
  const auto plan = schedule(R"({"dense_first_steps": 2, "dense_first_layers": 1})");
  const auto cause = [&](int64_t step, int64_t layer) {
    return schedule_cell(base, &plan, "self", "", {step, layer, 10, {}}).dense;
  };
  EXPECT_EQ(DenseCause::first_steps, cause(0, 3));
  EXPECT_EQ(DenseCause::first_steps, cause(1, 3));
  EXPECT_EQ(DenseCause::none, cause(2, 3));
  EXPECT_EQ(DenseCause::first_layers, cause(2, 0));
  EXPECT_EQ(DenseCause::none, schedule_cell(base, nullptr, "self", "", {1, 0, 10, {}}).dense);
}

}  // namespace
}  // namespace fovea
