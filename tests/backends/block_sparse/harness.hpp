// Runs sparse problems as plans, and the float64 answer with the pattern as an explicit mask
// tensor.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "fovea/attention.hpp"
#include "src/backends/block_sparse/backend.hpp"
#include "src/backends/cpu_flash/backend.hpp"
#include "src/backends/reference/agreement.hpp"
#include "src/backends/reference/backend.hpp"
#include "src/core/random_inputs.hpp"
#include "src/simd/cpu_features.hpp"
#include "src/sparse/pattern.hpp"

namespace fovea::block_sparse_test {

inline Problem problem(const std::string& text) {
  auto parsed = parse_problem(text);
  EXPECT_TRUE(parsed.has_value()) << text << ": " << (parsed ? "" : parsed.error().message);
  return parsed.value_or(Problem{});
}

// The name that runs the problem's pattern.
inline BackendName backend_of(const Problem& p) {
  if (p.sparse && p.sparse->name == "radial") return backend::RADIAL_ATTN;
  if (p.sparse && p.sparse->name == "local") return backend::LOCAL_SPARSE_ATTN;
  return backend::BLOCK_SPARSE_ATTN;
}

inline ExecutionContext cpu_context(std::string_view isa = simd::name(simd::probe_isa())) {
  ExecutionContext context;
  context.facts = DeviceFacts(PlatformId::cpu);
  context.facts.set("isa", std::string(isa));
  return context;
}

inline std::shared_ptr<const BlockMask> mask_of(const Problem& p) {
  const auto pattern = sparse::read_pattern(p);
  EXPECT_TRUE(pattern.has_value()) << (pattern ? "" : pattern.error().message);
  const auto mask = sparse::planned_mask(*pattern);
  EXPECT_TRUE(mask.has_value()) << (mask ? "" : mask.error().message);
  return mask.value_or(nullptr);
}

// A bool tensor [B, Hq, Sq, Skv] that hides the keys outside the blocks.
struct TokenMask {
  TokenMask(const BlockMask& mask, const Problem& p)
      : bytes(static_cast<size_t>(p.batch * p.heads_q * p.seq_q * p.seq_kv)) {
    const BlockMaskShape& s = mask.shape();
    size_t at = 0;
    for (int64_t b = 0; b < p.batch; ++b)
      for (int64_t h = 0; h < p.heads_q; ++h)
        for (int64_t i = 0; i < p.seq_q; ++i, at += static_cast<size_t>(p.seq_kv))
          for (const int32_t block :
               mask.row(s.batch > 1 ? b : 0, s.heads > 1 ? h : 0, i / s.block_q)) {
            const int64_t first = int64_t{block} * s.block_kv;
            const int64_t last = std::min<int64_t>(first + s.block_kv, p.seq_kv);
            std::fill_n(bytes.begin() + static_cast<ptrdiff_t>(at) + first, last - first,
                        uint8_t{1});
          }
    view = make_view(bytes.data(), kBool, {p.batch, p.heads_q, p.seq_q, p.seq_kv});
  }

  std::vector<uint8_t> bytes;
  TensorView view;
};

// The same problem without a pattern, its keys hidden by TokenMask.
inline Problem masked(Problem p) {
  p.sparse.reset();
  p.mask = {MaskKind::boolean, kBool, true, p.heads_q != 1, true};
  return p;
}

// Plans and runs in a workspace of the size the plan asks for, with guards around it.
inline Receipt run_plan(const Backend& backend, BackendName name, const Problem& p,
                        const AttentionTensors& tensors, const ExecutionContext& context,
                        const AttentionSpec* spec = nullptr) {
  auto plan = backend.plan(name, p, spec, context);
  EXPECT_TRUE(plan.has_value()) << (plan ? "" : plan.error().message);
  if (!plan) return {};
  constexpr size_t kGuard = Plan::kWorkspaceAlignment;
  const size_t bytes = (*plan)->workspace_bytes();
  const size_t total = (bytes + 3 * kGuard - 1) / kGuard * kGuard;
  std::unique_ptr<void, void (*)(void*)> memory(std::aligned_alloc(kGuard, total), std::free);
  auto* begin = static_cast<unsigned char*>(memory.get());
  std::memset(begin, 0xff, total);
  const Status status = (*plan)->run(tensors, {begin + kGuard, bytes}, {});
  EXPECT_TRUE(status.has_value()) << (status ? "" : status.error().message);
  for (size_t i = 0; i < kGuard; ++i) {
    EXPECT_EQ(begin[i], 0xff) << "before the workspace";
    EXPECT_EQ(begin[kGuard + bytes + i], 0xff) << "behind the workspace";
  }
  return (*plan)->receipt();
}

inline std::vector<uint8_t> bytes_of(const TensorView& view) {
  if (!view.present()) return {};
  const auto* data = static_cast<const uint8_t*>(view.data);
  return {data, data + static_cast<size_t>(view.numel()) * (view.dtype.bits / 8)};
}

// Runs the sparse problem with random inputs and compares with the masked oracle.
inline void expect_masked_dense(const std::string& text, const ExecutionContext& context,
                                const RandomOptions& options = {}) {
  SCOPED_TRACE(text);
  const Problem p = problem(text);
  const auto mask = mask_of(p);
  ASSERT_NE(mask, nullptr);
  const auto inputs = make_random_inputs(p, options);
  ASSERT_TRUE(inputs.has_value()) << inputs.error().message;
  const uint64_t before = inputs->input_hash();
  const auto backend = backends::make_block_sparse_backend();
  const Receipt receipt = run_plan(*backend, backend_of(p), p, inputs->tensors(), context);
  EXPECT_EQ(receipt.density, mask->density());
  EXPECT_EQ(inputs->input_hash(), before);
  EXPECT_TRUE(inputs->output_guards_intact());
  const TokenMask tokens(*mask, p);
  AttentionTensors dense = inputs->tensors();
  dense.mask = tokens.view;
  const Problem question = masked(p);
  auto oracle = backends::reference::compute_oracle(question, dense, serial_executor());
  ASSERT_TRUE(oracle.has_value()) << oracle.error().message;
  const auto agreement =
      backends::reference::compare_to_oracle(question, dense, *oracle, DataKind::random);
  EXPECT_TRUE(agreement.pass) << agreement.out.rel_l2 << " of " << agreement.tolerance.rel_l2
                              << ", LSE " << agreement.lse.max_abs;
}

}  // namespace fovea::block_sparse_test
