#include "src/sparse/pattern.hpp"

#include <gtest/gtest.h>

#include <string>

namespace fovea::sparse {
namespace {

Problem problem(const std::string& text) { return parse_problem(text).value(); }

std::string error_of(const std::string& pattern) {
  const auto read = read_pattern(problem("f32 b2 h4 s300 d8 sparse=" + pattern));
  return read ? "read" : read.error().message;
}

TEST(SparsePatternText, ReadsWhatItPrints) {
  RadialPattern radial;
  radial.frames = 3;
  radial.tokens_per_frame = 90;
  radial.text_tokens = 30;
  radial.block_size = 64;
  radial.decay_factor = 0.2;
  radial.model = VideoModel::hunyuan;
  radial.rule = RadialRule::telefuser;
  Problem p = problem("f32 b1 h1 s300 d8");
  p.sparse = to_pattern(radial);
  EXPECT_EQ(to_string(p),
            "f32 b1 h1 s300 d8 "
            "sparse=radial(frames=3,tokens=90,block=64,decay=0.2,model=hunyuan,rule=telefuser)");
  EXPECT_EQ(std::get<RadialPattern>(read_pattern(problem(to_string(p))).value()), radial);

  LocalWindowPattern local;
  local.frames = 2;
  local.tokens_per_frame = 128;
  local.text_tokens = 44;
  local.block_size = 64;
  local.window = 3;
  local.grid = BlockWindowGrid{2, 1};
  p.sparse = to_pattern(local);
  EXPECT_EQ(to_string(p),
            "f32 b1 h1 s300 d8 sparse=local(frames=2,tokens=128,block=64,window=3,grid=2x1)");
  EXPECT_EQ(std::get<LocalWindowPattern>(read_pattern(problem(to_string(p))).value()), local);

  const ListShape lists{64, 128, 9, 2, 1};
  p = problem("f32 b2 h4 s300 d8");
  p.sparse = to_pattern(lists);
  EXPECT_EQ(to_string(p), "f32 b2 h4 s300 d8 sparse=mask(q=64,kv=128,most=9,batch=2,heads=1)");
  EXPECT_EQ(std::get<ListShape>(read_pattern(problem(to_string(p))).value()), lists);
  EXPECT_EQ(list_shape(p), lists);
}

TEST(SparsePatternText, Defaults) {
  const auto radial = std::get<RadialPattern>(
      read_pattern(problem("f32 b1 h1 s300 d8 sparse=radial(frames=3)")).value());
  EXPECT_EQ(radial.tokens_per_frame, 100);
  EXPECT_EQ(radial.block_size, 128);
  const auto topk =
      std::get<BlockTopk>(read_pattern(problem("f32 b1 h1 s300 d8 sparse=topk")).value());
  EXPECT_EQ(topk, BlockTopk{});
  const auto random = std::get<RandomPattern>(
      read_pattern(problem("f32 b2 h1 s300 sk=7 d8 sparse=random(batch=2)")).value());
  EXPECT_EQ(random.shape, (BlockMaskShape{300, 7, 128, 128, 2, 1}));
}

TEST(SparsePatternText, Errors) {
  EXPECT_EQ(error_of("radial"), "radial needs frames");
  EXPECT_EQ(error_of("radial(frames=0)"),
            "radial: frames '0' is not accepted (accepted: 1 to 268435456)");
  EXPECT_EQ(error_of("radial(frames=2,tokens=200)"),
            "radial: 2 frames of 200 tokens are 400, the sequence has 300 (accepted: the video and "
            "then text)");
  EXPECT_EQ(error_of("radial(frames=3,decay=fast)"),
            "radial: decay 'fast' is not accepted (accepted: a number)");
  EXPECT_EQ(error_of("radial(frames=3,model=mochi)"),
            "model_type 'mochi' is not a video model (accepted: wan, hunyuan)");
  EXPECT_EQ(error_of("local(frames=3,grid=6)"),
            "local: grid '6' is not accepted (accepted: HxW, for example 6x10)");
  EXPECT_EQ(error_of("random(heads=3)"), "random: heads '3' is not accepted (accepted: 1, 4)");
  EXPECT_EQ(error_of("random(density=2)"),
            "random: density '2' is not accepted (accepted: 0 to 1)");
  EXPECT_EQ(error_of("topk(sparsity=1.5)"), "sparsity 1.5 is out of range (accepted: 0 to 1)");
  EXPECT_EQ(error_of("topk(keep=3)"),
            "topk has no parameter 'keep' (accepted: sparsity, block, prefix)");
}

TEST(SparsePatternText, RandomBlocksReachTheirDensityAndDiffer) {
  const auto mask =
      planned_mask(
          read_pattern(problem("f32 b2 h3 s4096 d8 sparse=random(density=0.3,batch=2,heads=3)"
                               " seed=9"))
              .value())
          .value();
  EXPECT_NEAR(mask->density(), 0.3, 0.02);
  EXPECT_NE(std::vector<int32_t>(mask->row(0, 0, 0).begin(), mask->row(0, 0, 0).end()),
            std::vector<int32_t>(mask->row(1, 2, 0).begin(), mask->row(1, 2, 0).end()));
  for (const auto& [density, expected] : {std::pair("0", 0.0), std::pair("1", 1.0)}) {
    const auto all = planned_mask(read_pattern(problem(std::string("f32 b1 h1 s900 d8 sparse=random"
                                                                   "(density=") +
                                                       density + ")"))
                                      .value())
                         .value();
    EXPECT_EQ(all->density(), expected);
  }
}

TEST(SparsePatternText, OfASpec) {
  AttentionSpec spec;
  spec.backend = backend::RADIAL_ATTN;
  EXPECT_EQ(video_pattern(spec, {2, 50}), to_pattern(RadialPattern{2, 50}));
  spec.backend = backend::LOCAL_SPARSE_ATTN;
  EXPECT_EQ(video_pattern(spec, {2, 50, BlockWindowGrid{1, 2}})->parameters.back().second, "1x2");
  spec.backend = backend::SPARGE_ATTN;
  EXPECT_EQ(video_pattern(spec, {2, 50}), std::nullopt);
}

}  // namespace
}  // namespace fovea::sparse
