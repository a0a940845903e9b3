// Which block lists the Hopper kernels take, and why not: answered without a device, in every
// build.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "src/backends/block_sparse_sm90/backend.hpp"
#include "src/backends/block_topk_sm90/selection.hpp"
#include "src/backends/flash_sm90/config.hpp"
#include "src/core/list_shape.hpp"
#include "src/sparse/pattern.hpp"

namespace fovea::backends {
namespace {

Problem problem(const std::string& text) {
  auto parsed = parse_problem(text);
  EXPECT_TRUE(parsed.has_value()) << text;
  return parsed.value_or(Problem{});
}

ExecutionPathResult ask(BackendName name, const Problem& p, const AttentionSpec* spec = nullptr,
                        std::shared_ptr<const BlockMask> mask = nullptr,
                        int64_t protected_kv_prefix = 0) {
  ExecutionContext context;
  context.protected_kv_prefix = protected_kv_prefix;
  context.facts = parse_facts(PlatformId::cuda, "sm=90").value();
  context.local = false;
  context.block_mask = std::move(mask);
  return make_block_sparse_sm90_backend()->resolve(name, p, spec, context);
}

AttentionSpec with_selection(std::string selection) {
  AttentionSpec spec;
  spec.backend = backend::BLOCK_SPARSE_ATTN;
  spec.block_sparse.emplace().selection = std::move(selection);
  return spec;
}

bool refuses(const ExecutionPathResult& report, std::string_view field) {
  return report.support == SupportStatus::unsupported &&
         std::any_of(report.reasons.begin(), report.reasons.end(),
                     [&](const Reason& reason) { return reason.field == field; });
}

// The values of lists on the device are not read; what a plan or a selection makes is known.
TEST(BlockSparseSm90Table, ProtectedKeysNeedListsThatAreKnown) {
  const AttentionSpec masks = with_selection("mask"), topk = with_selection("block_topk");
  const Problem given = problem("bf16 b1 h2 s300 d64 sparse=mask(most=2)");
  EXPECT_TRUE(
      refuses(ask(backend::BLOCK_SPARSE_ATTN, given, &masks, nullptr, 100), "protected_kv_prefix"));
  // Both have cases in the committed record.
  EXPECT_EQ(ask(backend::BLOCK_SPARSE_ATTN, given, &masks).support, SupportStatus::supported);
  EXPECT_EQ(
      ask(backend::BLOCK_SPARSE_ATTN, problem("bf16 b1 h2 s300 d64"), &topk, nullptr, 100).support,
      SupportStatus::supported);
}

TEST(BlockSparseSm90Table, BlocksOfEitherSize) {
  const AttentionSpec spec = with_selection("mask");
  for (const char* blocks : {"q=64,kv=64", "q=64,kv=128", "q=128,kv=64", "q=128,kv=128"})
    for (const char* sizes : {"bf16 b2 h4 hk=2 s300 sk=500 d128", "f16 b1 h2 s77 d40 dv=96",
                              "bf16 b2 h2 s300 d64 kvlen=300,7 lse=1 out=f32"})
      for (const std::string pattern : {"random(density=0.3,", "mask(most=2,"}) {
        const std::string text = std::string(sizes) + " sparse=" + pattern + blocks + ")";
        const ExecutionPathResult report = ask(backend::BLOCK_SPARSE_ATTN, problem(text), &spec);
        EXPECT_NE(report.support, SupportStatus::unsupported) << text;
        EXPECT_EQ(report.path, "cuda.block_sparse_sm90") << text;
        EXPECT_GT(report.workspace_bytes, 0u);
      }
}

TEST(BlockSparseSm90Table, WhatIsRefusedAndByWhichField) {
  const std::pair<const char*, const char*> table[] = {
      {"bf16 b1 h1 s300 d64 sparse=mask(most=2,partial=1)", "block_partial"},
      {"bf16 b1 h1 s300 d264 sparse=random", "head_dim"},
      {"bf16 b1 h1 s300 d136 sparse=random(q=64)", "block_q"},
      {"f16 b1 h1 s300 d64 dv=256 sparse=mask(most=2,q=64,kv=64)", "block_q"},
      {"f32 b1 h1 s300 d64 sparse=random", "dtype"},
      {"bf16 b1 h1 s300 d64 mask=causal sparse=random", "causal"},
      {"bf16 b1 h1 s300 d64 mask=bool sparse=random", "mask"},
  };
  const AttentionSpec spec = with_selection("mask");
  for (const auto& [text, field] : table) {
    const ExecutionPathResult report = ask(backend::BLOCK_SPARSE_ATTN, problem(text), &spec);
    std::string fields;
    for (const Reason& reason : report.reasons) fields += reason.field + ' ';
    EXPECT_TRUE(refuses(report, field)) << text << ": " << fields;
  }
}

// A mask that the caller has in host memory stands for the lists of the problem.
TEST(BlockSparseSm90Table, AMaskInTheContextIsPlanned) {
  const Problem random = problem("bf16 b1 h1 s300 d64 sparse=random(density=0.4)");
  const auto mask = sparse::planned_mask(sparse::read_pattern(random).value()).value();
  Problem p = random;
  p.sparse = to_pattern(ListShape{128, 128, mask->max_count(), 1, 1, false});
  const AttentionSpec spec = with_selection("mask");
  EXPECT_EQ(ask(backend::BLOCK_SPARSE_ATTN, p, &spec).density, std::nullopt);
  EXPECT_EQ(ask(backend::BLOCK_SPARSE_ATTN, p, &spec, mask).density, mask->density());
}

TEST(BlockSparseSm90Table, ChosenBlocksTakeWorkspace) {
  const Problem p = problem("bf16 b1 h12 s32760 d128");
  const ExecutionPathResult chosen = ask(backend::SPARGE_ATTN, p);
  EXPECT_EQ(chosen.support, SupportStatus::supported);
  EXPECT_EQ(chosen.density, 56.0 / 256);
  flash_sm90::Problem kernel;
  kernel.heads_q = kernel.heads_kv = 12;
  kernel.seq_q = kernel.seq_kv = 32760;
  kernel.list = true;
  const flash_sm90::Choice lists = flash_sm90::choose(kernel);
  const auto layout = block_topk_sm90::workspace_layout(make_selection(p, BlockTopk{}));
  EXPECT_EQ(chosen.workspace_bytes, lists.workspace_bytes + layout.total);
  AttentionSpec spec = with_selection("block_topk");
  spec.block_sparse->block_size = 64;
  EXPECT_EQ(ask(backend::BLOCK_SPARSE_ATTN, p, &spec).support, SupportStatus::supported);
  EXPECT_TRUE(
      refuses(ask(backend::SPARGE_ATTN, problem("bf16 b1 h2 s300 d64 mask=causal")), "window"));
  EXPECT_TRUE(refuses(ask(backend::SPARGE_ATTN, problem("bf16 b1 h2 s300 d136")), "head_dim"));
}

// At large head dimensions a tile is half of a block of 128 keys.
TEST(BlockSparseSm90Table, LargeHeadDimensions) {
  const AttentionSpec spec = with_selection("mask");
  for (const char* blocks : {"q=128,kv=64", "q=128,kv=128"})
    for (const char* sizes :
         {"bf16 b2 h4 hk=2 s300 sk=500 d256", "f16 b1 h2 s77 d40 dv=136", "bf16 b1 h2 s77 d192"}) {
      const std::string text = std::string(sizes) + " sparse=random(density=0.3," + blocks + ")";
      const ExecutionPathResult report = ask(backend::BLOCK_SPARSE_ATTN, problem(text), &spec);
      EXPECT_EQ(report.support, SupportStatus::unmigrated) << text;
      EXPECT_EQ(report.instance, "d256") << text;
    }
  for (const int block_kv : {64, 128}) {
    flash_sm90::Problem kernel;
    kernel.seq_q = kernel.seq_kv = 1000;
    kernel.head_dim = 256;
    kernel.list = true;
    kernel.list_block_kv = block_kv;
    const flash_sm90::Choice choice = flash_sm90::choose(kernel);
    EXPECT_EQ(choice.refusal, flash_sm90::Refusal::none);
    EXPECT_EQ(choice.key.source, flash_sm90::Source::halves);
    EXPECT_EQ(flash_sm90::block_q(choice.key), 128);
    EXPECT_EQ(flash_sm90::decode(flash_sm90::encode(choice.key)), choice.key);
    kernel.list_block_q = 64;
    EXPECT_EQ(flash_sm90::choose(kernel).refusal, flash_sm90::Refusal::combination);
  }
}

// Every pair of block sizes has an instance.
TEST(FlashSm90Lists, TheBlocksChooseTheInstance) {
  using flash_sm90::Source;
  for (const auto& [block_q, block_kv, source] : {std::tuple(128, 128, Source::list),
                                                  {128, 64, Source::pairs},
                                                  {64, 64, Source::small},
                                                  {64, 128, Source::small}})
    for (const int head_dim : {64, 96, 128}) {
      flash_sm90::Problem kernel;
      kernel.seq_q = kernel.seq_kv = 1000;
      kernel.head_dim = kernel.dim_v = head_dim;
      kernel.list = true;
      kernel.list_block_q = block_q;
      kernel.list_block_kv = block_kv;
      const flash_sm90::Choice choice = flash_sm90::choose(kernel);
      EXPECT_EQ(choice.refusal, flash_sm90::Refusal::none);
      EXPECT_EQ(choice.key.source, source);
      EXPECT_EQ(flash_sm90::block_q(choice.key), block_q);
      EXPECT_EQ(flash_sm90::item_rows(choice.key), 128);
      EXPECT_EQ(flash_sm90::decode(flash_sm90::encode(choice.key)), choice.key);
    }
}

// Sections lie behind each other and hold what the kernels write.
TEST(BlockTopkSm90, WorkspaceSectionsDoNotOverlap) {
  const Problem p = problem("f16 b2 h6 hk=3 s1000 sk=5003 d72");
  const BlockTopk options{0.8, 128, 0};
  const block_topk_sm90::Call call = make_selection(p, options);
  const auto layout = block_topk_sm90::workspace_layout(call);
  const std::pair<size_t, size_t> sections[] = {
      {layout.counts, size_t{2} * 6 * 8 * 4},
      {layout.indices, size_t{2} * 6 * 8 * 4 * static_cast<size_t>(call.most)},
      {layout.q_cells, size_t{2} * 6 * 64 * 128 * 2},
      {layout.k_cells, size_t{2} * 3 * 384 * 128 * 2},
      {layout.q_factors, size_t{2} * 6 * 16 * 4},
      {layout.k_factors, size_t{2} * 3 * 3 * 32 * 4},
      {layout.scores, size_t{2} * 6 * 8 * 40 * 4}};
  size_t end = 0;
  for (const auto& [at, bytes] : sections) {
    EXPECT_GE(at, end);
    EXPECT_LT(at, end + 256);
    EXPECT_EQ(at % 256, 0u);
    end = at + bytes;
  }
  EXPECT_GE(layout.total, end);
  // Nothing is scored where every block is kept.
  const auto all = block_topk_sm90::workspace_layout(make_selection(p, {0, 128, 0}));
  EXPECT_EQ(all.total, (size_t{2} * 6 * 8 * 4 + 255) / 256 * 256 +
                           (size_t{2} * 6 * 8 * 40 * 4 + 255) / 256 * 256);
}

TEST(BlockTopkSm90, SizesBeyondItsCountersAreRefused) {
  EXPECT_FALSE(selection_refusal(problem("bf16 b1 h40 s118800 d128")).has_value());
  EXPECT_FALSE(selection_refusal(problem("bf16 b65535 h1 s1024 d128")).has_value());
  EXPECT_FALSE(selection_refusal(problem("bf16 b1 h1 s64 sk=8388480 d128")).has_value());
  for (const char* text : {"bf16 b64 h64 s8000000 d128", "bf16 b1 h1 s64 sk=8388481 d128",
                           "bf16 b65536 h1 s1024 d128"})
    EXPECT_TRUE(selection_refusal(problem(text)).has_value()) << text;
}

}  // namespace
}  // namespace fovea::backends
