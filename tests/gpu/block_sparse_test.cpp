// Block lists on Hopper: masks and lists of the caller, against the float64 oracle with the same
// keys hidden token by token; all blocks on against the dense kernels.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/backends/block_sparse_sm90/backend.hpp"
#include "src/backends/flash_sm90/backend.hpp"
#include "src/core/element.hpp"
#include "src/cuda_device/device.hpp"
#include "tests/backends/block_sparse/harness.hpp"
#include "tests/gpu/device_case.hpp"

namespace fovea {
namespace {

using namespace block_sparse_test;
using gpu_test::DeviceCase;
using gpu_test::kDevice;
using gpu_test::must;

constexpr const char* kBlocks[] = {"q=128,kv=128", "q=128,kv=64", "q=64,kv=64", "q=64,kv=128"};

void must(cudaError_t error) { ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error); }

Attention layer_of(BackendName name) {
  AttentionConfig config;
  config.default_spec.emplace().backend = name;
  config.default_spec->block_sparse.emplace().selection = "mask";
  return must(Attention::create({}, config));
}

// The outputs on the host are the oracle's with the mask's keys.
void expect_oracle(const DeviceCase& c, const BlockMask& mask) {
  const TokenMask tokens(mask, c.problem);
  AttentionTensors dense = c.inputs.tensors();
  dense.mask = tokens.view;
  const Problem question = masked(c.problem);
  const auto executor = make_openmp_executor();
  auto oracle = backends::reference::compute_oracle(question, dense, *executor);
  ASSERT_TRUE(oracle.has_value()) << oracle.error().message;
  const auto agreement =
      backends::reference::compare_to_oracle(question, dense, *oracle, DataKind::random);
  EXPECT_TRUE(agreement.pass) << agreement.out.rel_l2 << " of " << agreement.tolerance.rel_l2
                              << ", LSE " << agreement.lse.max_abs << " of "
                              << agreement.tolerance.lse;
}

Problem without_pattern(Problem p) {
  p.sparse.reset();
  return p;
}

// Rows of blocks of every kind: full, empty, of one block, with and without the ragged one, like
// and unlike the row before. 21 rows and 20 columns, both ragged; the rows of further planes begin
// one pair later each.
constexpr int64_t kRowsSeqQ = 2630, kRowsSeqKv = 2482;
std::shared_ptr<const BlockMask> rows_of_every_kind(int64_t batch, int64_t heads) {
  using Row = std::set<int>;
  const auto range = [](int first, int last, Row row = {}) {
    for (int k = first; k <= last; ++k) row.insert(k);
    return row;
  };
  const Row last = {0, 7};  // has no neighbour
  Row even, odd;
  for (int k = 0; k < 20; k++) (k % 2 == 0 ? even : odd).insert(k);
  std::vector<std::array<Row, 2>> pairs = {
      {range(0, 19), range(0, 19)},            // all
      {range(0, 18), range(0, 18)},            // all but the ragged block
      {even, odd},                             // nothing in common
      {Row{}, Row{3}},                         // one block beside none
      {Row{5}, Row{6}},                        // one block each
      {range(0, 9, {19}), range(0, 9, {12})},  // the ragged block in one row
      {range(0, 9), range(0, 9, {19})},        // and in one row that lists all of the other's
      {range(0, 18), range(2, 19)},            // both have blocks of their own
      {range(0, 19), range(0, 19)},            // all again
      {Row{}, Row{}},                          // empty
  };
  const BlockMaskShape shape{kRowsSeqQ, kRowsSeqKv, 128, 128, batch, heads};
  std::vector<uint8_t> on;
  for (int64_t plane = 0; plane < batch * heads; ++plane) {
    for (int64_t row = 0; row < shape.rows(); ++row) {
      const auto r = static_cast<size_t>(row);
      const Row& list = r / 2 < pairs.size() ? pairs[r / 2][r % 2] : last;
      for (int k = 0; k < shape.columns(); ++k) on.push_back(list.contains(k));
    }
    std::rotate(pairs.begin(), pairs.begin() + 1, pairs.end());
  }
  return std::make_shared<const BlockMask>(must(BlockMask::from_matrix(shape, on)));
}
std::string rows_sizes(const std::string& rest) {
  return "s" + std::to_string(kRowsSeqQ) + " sk=" + std::to_string(kRowsSeqKv) + " " + rest;
}

class GpuBlockSparse : public testing::Test {
 protected:
  void SetUp() override {
    const auto count = cuda::device_count();
    if (!count) GTEST_SKIP() << count.error().message;
    ExecutionContext context;
    context.facts = must(probe_cuda(0));
    context.device = kDevice;
    const auto report = backends::make_block_sparse_sm90_backend()->resolve(
        backend::BLOCK_SPARSE_ATTN, problem("bf16 b1 h1 s64 d64 sparse=random"), nullptr, context);
    if (report.support == SupportStatus::unsupported) GTEST_SKIP() << report.reasons.front().got;
  }
};

// Sizes, and planes of the mask.
const std::vector<std::string>& cases() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> out;
    for (const std::string blocks : kBlocks)
      for (const char* sizes :
           {"bf16 b2 h4 hk=2 s300 sk=517 d128 lse=1 sparse=random(density=0.4,batch=2,heads=4,",
            "f16 b2 h4 hk=1 s515 sk=1100 d64 lse=1 sparse=random(density=0.3,batch=1,heads=4,",
            "bf16 b3 h2 s129 sk=641 d96 lse=1 sparse=random(density=0.5,batch=3,heads=1,",
            "bf16 b1 h3 s700 d40 dv=24 lse=1 sparse=random(density=0.5,",
            "f16 b2 h2 s256 sk=1024 d128 kvlen=1000,130 lse=1 sparse=random(density=0.4,batch=2,"
            "heads=2,",
            "bf16 b2 h6 hk=3 s200 sk=900 d128 layout=bhsd out=f32 lse=1 kvlen=0,899 "
            "sparse=random(density=0.3,heads=6,",
            "bf16 b1 h2 s1 sk=1 d128 lse=1 sparse=random(density=1,",
            "f16 b1 h2 s65 sk=64 d8 lse=1 sparse=random(density=1,",
            "bf16 b1 h1 s1500 sk=1600 d64 lse=1 sparse=random(density=0.1,"})
        out.push_back(sizes + blocks + ") seed=3");
    for (const std::string blocks : {"q=128,kv=128", "q=128,kv=64"})
      for (const char* sizes :
           {"bf16 b2 h4 hk=2 s300 sk=517 d256 lse=1 sparse=random(density=0.4,batch=2,heads=4,",
            "f16 b2 h2 s129 sk=900 d40 dv=136 kvlen=833,65 lse=1 sparse=random(density=0.5,",
            "bf16 b1 h3 s515 sk=1600 d192 layout=bhsd out=f32 lse=1 sparse=random(density=0.3,"})
        out.push_back(sizes + blocks + ") seed=3");
    return out;
  }();
  return all;
}

TEST_F(GpuBlockSparse, AMaskOfTheCallerEqualsMaskedDense) {
  const Attention layer = layer_of(backend::BLOCK_SPARSE_ATTN);
  for (const std::string& text : cases()) {
    SCOPED_TRACE(text);
    const Problem pattern = problem(text);
    const auto mask = mask_of(pattern);
    const DeviceCase c(without_pattern(pattern), kDevice);
    CallOptions options = c.options();
    options.block_mask = mask;
    const auto receipt = layer.run(c.device.tensors(), options);
    ASSERT_TRUE(receipt.has_value()) << receipt.error().message;
    EXPECT_EQ((*receipt)->path, "cuda.block_sparse_sm90");
    EXPECT_EQ((*receipt)->density, mask->density());
    c.download();
    expect_oracle(c, *mask);
  }
}

TEST_F(GpuBlockSparse, RowsOfEveryKindAgreeWithTheOracleAndRepeat) {
  const Attention layer = layer_of(backend::BLOCK_SPARSE_ATTN);
  for (const auto& [sizes, planes] :
       {std::pair("bf16 b1 h2 d128 lse=1 seed=1 ", false),
        {"f16 b2 h2 hk=1 d128 lse=1 seed=2 ", true},
        {"bf16 b1 h3 d112 dv=128 lse=1 out=f32 layout=bhsd seed=3 ", true}}) {
    SCOPED_TRACE(sizes);
    const Problem p = problem(rows_sizes(sizes));
    const auto mask = planes ? rows_of_every_kind(p.batch, p.heads_q) : rows_of_every_kind(1, 1);
    const DeviceCase c(p, kDevice);
    CallOptions options = c.options();
    options.block_mask = mask;
    const auto receipt = layer.run(c.device.tensors(), options);
    ASSERT_TRUE(receipt.has_value()) << receipt.error().message;
    EXPECT_EQ((*receipt)->instance, "d128");
    c.download();
    expect_oracle(c, *mask);
    const auto first = bytes_of(c.inputs.tensors().out);
    for (int again = 0; again < 20; ++again) {
      must(layer.run(c.device.tensors(), options));
      c.download();
      ASSERT_EQ(bytes_of(c.inputs.tensors().out), first);
    }
  }
}

// With q = k = 0 the output is the mean of the visible values: here of the numbers of their blocks.
TEST_F(GpuBlockSparse, RowsOfEveryKindAverageTheirBlocks) {
  const Attention layer = layer_of(backend::BLOCK_SPARSE_ATTN);
  const DeviceCase c(problem(rows_sizes("bf16 b1 h2 d128 lse=1 out=f32")), kDevice);
  const auto mask = rows_of_every_kind(1, 2);
  const AttentionTensors& t = c.inputs.tensors();
  for (const TensorView* view : {&t.q, &t.k})
    std::memset(view->data, 0, static_cast<size_t>(view->numel()) * 2);
  for (int64_t n = 0; n < t.v.numel(); ++n)
    store_element(t.v.data, t.v.dtype, n, static_cast<double>(n / (2 * 128) / 128));
  must(c.device.refill(t));
  CallOptions options = c.options();
  options.block_mask = mask;
  must(layer.run(c.device.tensors(), options));
  c.download();
  for (int64_t row = 0; row < kRowsSeqQ; ++row)
    for (int64_t head = 0; head < 2; ++head) {
      double keys = 0, sum = 0;
      for (const int32_t block : mask->row(0, head, row / 128)) {
        const auto here = static_cast<double>(std::min<int64_t>(128, kRowsSeqKv - block * 128));
        keys += here;
        sum += here * block;
      }
      const double mean = keys > 0 ? sum / keys : 0;
      const double lse = load_element(t.lse.data, kF32, head * kRowsSeqQ + row);
      if (keys == 0)
        ASSERT_EQ(lse, -INFINITY);
      else
        ASSERT_NEAR(lse, std::log(keys), 1e-5);
      for (int64_t d = 0; d < 128; ++d)
        ASSERT_NEAR(load_element(t.out.data, kF32, (row * 2 + head) * 128 + d), mean, 2e-5)
            << "row " << row << ", head " << head << ", column " << d;
    }
}

TEST_F(GpuBlockSparse, ListsOnTheDeviceEqualMaskedDense) {
  const Attention layer = layer_of(backend::BLOCK_SPARSE_ATTN);
  for (const std::string& text : cases()) {
    SCOPED_TRACE(text);
    const Problem pattern = problem(text);
    const auto mask = mask_of(pattern);
    const DeviceCase c(without_pattern(pattern), kDevice);
    const BlockMaskShape& s = mask->shape();
    const auto memory = [](std::span<const int32_t> values) {
      return const_cast<int32_t*>(values.data());
    };
    AttentionTensors lists;
    lists.block_counts = make_view(memory(mask->counts()), kI32, {s.batch, s.heads, mask->rows()});
    lists.block_indices = make_view(memory(mask->indices()), kI32,
                                    {s.batch, s.heads, mask->rows(), mask->max_count()});
    const auto uploaded = must(cuda::DeviceTensors::upload(lists, kDevice, c.stream.get()));
    AttentionTensors tensors = c.device.tensors();
    tensors.block_counts = uploaded.tensors().block_counts;
    tensors.block_indices = uploaded.tensors().block_indices;
    CallOptions options = c.options();
    options.block_q = s.block_q;
    options.block_kv = s.block_kv;
    const auto receipt = layer.run(tensors, options);
    ASSERT_TRUE(receipt.has_value()) << receipt.error().message;
    c.download();
    expect_oracle(c, *mask);
    const auto first = bytes_of(c.inputs.tensors().out);
    must(layer.run(tensors, options));
    c.download();
    EXPECT_EQ(bytes_of(c.inputs.tensors().out), first);
  }
}

// Lists that no validation on the host has seen: counts beyond the row and below zero.
TEST_F(GpuBlockSparse, CountsOnTheDeviceAreKeptWithinTheirRow) {
  const Attention layer = layer_of(backend::BLOCK_SPARSE_ATTN);
  const std::vector<int32_t> indices_of_rows = {0, 3, 1, 2};
  for (const int32_t block_q : {128, 64})
    for (const int32_t block_kv : {128, 64}) {
      const DeviceCase c(
          problem("bf16 b1 h1 s" + std::to_string(2 * block_q) + " sk=512 d128 lse=1"), kDevice);
      std::vector<int32_t> counts = {1000, -7}, indices = indices_of_rows;
      AttentionTensors lists;
      lists.block_counts = make_view(counts.data(), kI32, {1, 1, 2});
      lists.block_indices = make_view(indices.data(), kI32, {1, 1, 2, 2});
      const auto uploaded = must(cuda::DeviceTensors::upload(lists, kDevice, c.stream.get()));
      AttentionTensors tensors = c.device.tensors();
      tensors.block_counts = uploaded.tensors().block_counts;
      tensors.block_indices = uploaded.tensors().block_indices;
      CallOptions options = c.options();
      options.block_q = block_q;
      options.block_kv = block_kv;
      const auto receipt = layer.run(tensors, options);
      ASSERT_TRUE(receipt.has_value()) << receipt.error().message;
      c.download();
      counts = {2, 0};
      expect_oracle(c, must(BlockMask::from_lists({2 * block_q, 512, block_q, block_kv, 1, 1},
                                                  counts, indices)));
    }
}

TEST_F(GpuBlockSparse, RowsWithoutBlocksAreZeroAndMinusInfinity) {
  const Attention layer = layer_of(backend::BLOCK_SPARSE_ATTN);
  for (const std::string blocks : kBlocks) {
    SCOPED_TRACE(blocks);
    const Problem pattern =
        problem("bf16 b1 h2 s300 sk=400 d128 lse=1 sparse=random(density=0," + blocks + ")");
    const DeviceCase c(without_pattern(pattern), kDevice);
    CallOptions options = c.options();
    options.block_mask = mask_of(pattern);
    must(layer.run(c.device.tensors(), options));
    c.download();
    const AttentionTensors& t = c.inputs.tensors();
    for (int64_t n = 0; n < t.out.numel(); ++n)
      ASSERT_EQ(load_element(t.out.data, t.out.dtype, n), 0.0) << n;
    for (int64_t n = 0; n < t.lse.numel(); ++n)
      ASSERT_EQ(load_element(t.lse.data, kF32, n), -INFINITY) << n;
  }
}

// What a row does not list is not read into it, also where another row lists it.
TEST_F(GpuBlockSparse, BlocksThatARowDoesNotListMayHoldNan) {
  const Attention layer = layer_of(backend::BLOCK_SPARSE_ATTN);
  std::vector<std::string> texts;
  for (const std::string blocks : kBlocks)
    texts.push_back("bf16 b1 h1 s512 sk=1100 d128 lse=1 sparse=random(density=0.4," + blocks +
                    ") seed=11");
  texts.push_back(rows_sizes("bf16 b1 h1 d128 lse=1 seed=11"));
  for (const std::string& text : texts) {
    SCOPED_TRACE(text);
    const Problem pattern = problem(text);
    const auto mask = pattern.sparse ? mask_of(pattern) : rows_of_every_kind(1, 1);
    const DeviceCase clean(without_pattern(pattern), kDevice);
    CallOptions options = clean.options();
    options.block_mask = mask;
    must(layer.run(clean.device.tensors(), options));
    clean.download();
    const auto expected = bytes_of(clean.inputs.tensors().out);
    const auto row_bytes = static_cast<size_t>(128 * 2);
    for (int64_t bad = 0; bad < mask->columns(); ++bad) {
      const DeviceCase c(without_pattern(pattern), kDevice);
      const AttentionTensors& t = c.inputs.tensors();
      const int64_t from = bad * mask->shape().block_kv;
      const int64_t to = std::min(from + mask->shape().block_kv, pattern.seq_kv);
      for (const TensorView* view : {&t.k, &t.v})
        std::memset(static_cast<char*>(view->data) + static_cast<size_t>(from) * row_bytes, 0xff,
                    static_cast<size_t>(to - from) * row_bytes);
      must(c.device.refill(t));
      CallOptions here = c.options();
      here.block_mask = mask;
      must(layer.run(c.device.tensors(), here));
      c.download();
      const auto got = bytes_of(t.out);
      for (int64_t row = 0; row < pattern.seq_q; ++row) {
        const auto list = mask->row(0, 0, row / mask->shape().block_q);
        const bool listed = std::find(list.begin(), list.end(), bad) != list.end();
        const auto at = static_cast<size_t>(row) * row_bytes;
        const bool same = std::memcmp(got.data() + at, expected.data() + at, row_bytes) == 0;
        ASSERT_NE(same, listed) << "row " << row << ", block " << bad;
      }
    }
  }
}

// Bug row 74: all blocks on is the dense kernel with the same tile, to the bit (blocks of 64
// queries have tiles of their own). Up to four key blocks the dense kernel does not cut its last
// wave.
TEST_F(GpuBlockSparse, AllBlocksOnIsDenseToTheBit) {
  ExecutionContext context;
  context.facts = must(probe_cuda(0));
  context.device = kDevice;
  for (const char* sizes :
       {"bf16 b2 h4 hk=2 s300 sk=512 d128", "f16 b1 h3 s1000 sk=500 d128",
        "bf16 b2 h2 s129 sk=400 d128 kvlen=400,200", "bf16 b2 h4 s384 sk=512 d96",
        "f16 b2 h2 s77 sk=300 d96 kvlen=1,300", "bf16 b1 h5 s640 sk=384 d64"}) {
    SCOPED_TRACE(sizes);
    const Problem dense = problem(std::string(sizes) + " lse=1");
    std::vector<std::vector<uint8_t>> outputs;
    for (const char* blocks : {"", "q=128,kv=128", "q=128,kv=64"}) {
      const bool lists = *blocks != 0;
      const Problem sparse =
          lists ? problem(std::string(sizes) + " lse=1 sparse=random(density=1," + blocks + ")")
                : dense;
      const DeviceCase c(dense, kDevice);
      const auto backend =
          lists ? backends::make_block_sparse_sm90_backend() : backends::make_flash_sm90_backend();
      const auto plan =
          must(backend->plan(lists ? backend::BLOCK_SPARSE_ATTN : backend::FLASH_ATTN_3,
                             lists ? sparse : dense, nullptr, context));
      const auto workspace =
          must(cuda::Memory::allocate(plan->workspace_bytes(), kDevice, c.stream.get()));
      must(plan->run(c.device.tensors(), {workspace.data(), workspace.bytes()}, c.stream.get()));
      c.download();
      outputs.push_back(bytes_of(c.inputs.tensors().out));
      outputs.push_back(bytes_of(c.inputs.tensors().lse));
    }
    for (size_t n : {2, 4}) {
      EXPECT_EQ(outputs[0], outputs[n]);
      EXPECT_EQ(outputs[1], outputs[n + 1]);
    }
  }
}

TEST_F(GpuBlockSparse, PlansOfMasksAreKeptByContentsAndFew) {
  const Attention layer = layer_of(backend::BLOCK_SPARSE_ATTN);
  const DeviceCase c(problem("bf16 b1 h1 s512 d64"), kDevice);
  const auto mask = [](int64_t seed) {
    return mask_of(
        problem("bf16 b1 h1 s512 d64 sparse=random(density=0.5) seed=" + std::to_string(seed)));
  };
  const auto run = [&](std::shared_ptr<const BlockMask> with) {
    CallOptions options = c.options();
    options.block_mask = std::move(with);
    return must(layer.run(c.device.tensors(), options));
  };
  const auto first = run(mask(1));
  EXPECT_EQ(run(mask(1)), first);
  EXPECT_NE(run(mask(2)), first);
  for (int64_t seed = 2; seed <= 8; ++seed) {
    run(mask(seed));
    EXPECT_EQ(run(mask(1)), first) << "eight masks stay";
  }
  for (int64_t seed = 20; seed < 28; ++seed) run(mask(seed));
  EXPECT_NE(run(mask(1)), first) << "a ninth drives out the oldest";
}

TEST_F(GpuBlockSparse, ACapturedCallKeepsItsLists) {
  for (const bool random : {true, false}) {
    const Problem pattern =
        problem(random ? "bf16 b1 h2 s600 d128 lse=1 sparse=random(density=0.4) seed=5"
                       : rows_sizes("bf16 b1 h2 d128 lse=1 seed=5"));
    const auto mask = random ? mask_of(pattern) : rows_of_every_kind(1, 2);
    const DeviceCase c(without_pattern(pattern), kDevice);
    const auto stream = static_cast<cudaStream_t>(c.stream.get().handle);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    {
      const Attention layer = layer_of(backend::BLOCK_SPARSE_ATTN);
      CallOptions options = c.options();
      options.block_mask = mask;
      must(layer.run(c.device.tensors(), options));
      must(cudaStreamSynchronize(stream));
      must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
      const auto captured = layer.run(c.device.tensors(), options);
      must(cudaStreamEndCapture(stream, &graph));
      ASSERT_TRUE(captured.has_value()) << captured.error().message;
    }
    must(cudaGraphInstantiate(&exec, graph, 0));
    must(cudaGraphDestroy(graph));
    must(cudaMemsetAsync(c.device.tensors().out.data, 0xff,
                         static_cast<size_t>(c.device.tensors().out.numel()) * 2, stream));
    must(cudaGraphLaunch(exec, stream));
    c.download();
    expect_oracle(c, *mask);
    must(cudaGraphExecDestroy(exec));
  }
}

TEST_F(GpuBlockSparse, MasksThatDoNotFitAreRefusedByField) {
  const Attention layer = layer_of(backend::BLOCK_SPARSE_ATTN);
  const DeviceCase c(problem("bf16 b2 h2 s256 d64"), kDevice);
  const auto refusal = [&](const BlockMaskShape& shape) {
    CallOptions options = c.options();
    const std::vector<uint8_t> on(
        static_cast<size_t>(shape.batch * shape.heads * shape.rows() * shape.columns()), 1);
    options.block_mask = std::make_shared<const BlockMask>(must(BlockMask::from_matrix(shape, on)));
    const auto result = layer.run(c.device.tensors(), options);
    return result ? std::string("accepted") : result.error().message;
  };
  EXPECT_NE(refusal({256, 300, 128, 128, 1, 1}).find("256 x 300"), std::string::npos);
  EXPECT_NE(refusal({256, 256, 128, 128, 3, 1}).find("3 batch items"), std::string::npos);
  EXPECT_NE(refusal({256, 256, 128, 128, 1, 4}).find("4 heads"), std::string::npos);
}

}  // namespace
}  // namespace fovea
