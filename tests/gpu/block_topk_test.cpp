// Blocks chosen on Hopper against the rule in float64, and the attention over them.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "src/backends/block_sparse_sm90/backend.hpp"
#include "src/backends/block_topk_sm90/selection.hpp"
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

void must(cudaError_t error) { ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error); }

constexpr int64_t kCell = 16;

int64_t pieces(int64_t total, int64_t size) { return (total + size - 1) / size; }

int64_t length_of(const DeviceCase& c, int64_t batch) {
  const TensorView& lengths = c.inputs.tensors().kv_lengths;
  if (!lengths.present()) return c.problem.seq_kv;
  return static_cast<int64_t>(load_element(lengths.data, lengths.dtype, batch));
}

// Averages of cells of one head, in float64: [cells][dim].
std::vector<std::vector<double>> cells_of(const TensorView& t, const Strides& strides,
                                          int64_t batch, int64_t head, int64_t tokens,
                                          int64_t dim) {
  std::vector<std::vector<double>> out;
  const int64_t from = batch * strides.batch + head * strides.head;
  for (int64_t first = 0; first < tokens; first += kCell) {
    const int64_t last = std::min(first + kCell, tokens);
    std::vector<double>& mean = out.emplace_back(static_cast<size_t>(dim));
    for (int64_t i = first; i < last; ++i)
      for (int64_t d = 0; d < dim; ++d)
        mean[static_cast<size_t>(d)] += load_element(t.data, t.dtype, from + i * strides.seq + d) /
                                        static_cast<double>(last - first);
  }
  return out;
}

// The scores of one row of blocks.
std::vector<double> scores_of(const DeviceCase& c, int64_t block, int64_t batch, int64_t head,
                              int64_t row) {
  const Problem& p = c.problem;
  const AttentionTensors& t = c.inputs.tensors();
  const auto queries = cells_of(t.q, p.q_strides, batch, head, p.seq_q, p.head_dim);
  const auto keys = cells_of(t.k, p.k_strides, batch, head / (p.heads_q / p.heads_kv),
                             length_of(c, batch), p.head_dim);
  const auto per_block = static_cast<size_t>(block / kCell);
  std::vector<double> out;
  for (size_t first = 0; first < keys.size(); first += per_block) {
    double sum = 0;
    const size_t from = static_cast<size_t>(row) * per_block;
    for (size_t i = from; i < std::min(from + per_block, queries.size()); ++i)
      for (size_t j = first; j < std::min(first + per_block, keys.size()); ++j) {
        double dot = 0;
        for (size_t d = 0; d < keys[j].size(); ++d) dot += queries[i][d] * keys[j][d];
        sum += std::exp(dot * p.effective_scale());
      }
    out.push_back(std::log(sum));
  }
  return out;
}

class GpuBlockTopk : public testing::Test {
 protected:
  void SetUp() override {
    const auto count = cuda::device_count();
    if (!count) GTEST_SKIP() << count.error().message;
    context.facts = must(probe_cuda(0));
    context.device = kDevice;
    const auto report = backends::make_block_sparse_sm90_backend()->resolve(
        backend::SPARGE_ATTN, problem("bf16 b1 h1 s64 d64"), nullptr, context);
    if (report.support == SupportStatus::unsupported) GTEST_SKIP() << report.reasons.front().got;
  }

  // What the kernels choose.
  static BlockMask choose(const DeviceCase& c, const BlockTopk& options) {
    block_topk_sm90::Call call = backends::make_selection(c.problem, options);
    const AttentionTensors& t = c.device.tensors();
    call.q.data = t.q.data;
    call.k.data = t.k.data;
    if (t.kv_lengths.present()) {
      call.kv_lengths = t.kv_lengths.data;
      call.kv_lengths_wide = t.kv_lengths.dtype == kI64;
    }
    const auto layout = block_topk_sm90::workspace_layout(call);
    const auto memory = must(cuda::Memory::allocate(layout.total, kDevice, c.stream.get()));
    must(cuda::fill(memory.data(), 0xff, memory.bytes(), c.stream.get()));
    must(static_cast<cudaError_t>(block_topk_sm90::prepare()));
    must(static_cast<cudaError_t>(block_topk_sm90::select(
        call, memory.data(), static_cast<CUstream_st*>(c.stream.get().handle))));
    const BlockMaskShape shape{c.problem.seq_q,    c.problem.seq_kv, options.block_size,
                               options.block_size, c.problem.batch,  c.problem.heads_q};
    const auto rows = static_cast<size_t>(shape.batch * shape.heads * shape.rows());
    std::vector<int32_t> counts(rows), indices(rows * static_cast<size_t>(call.most));
    const auto* from = static_cast<const char*>(memory.data());
    must(
        cuda::copy_to_host(counts.data(), from + layout.counts, counts.size() * 4, c.stream.get()));
    must(cuda::copy_to_host(indices.data(), from + layout.indices, indices.size() * 4,
                            c.stream.get()));
    return must(BlockMask::from_lists(shape, counts, indices));
  }

  // Whether the lists are those of the rule: as long, with the protected blocks, and no block left
  // out that scores more than rounding above one that was chosen.
  static void expect_best(const DeviceCase& c, const BlockTopk& options, const BlockMask& chosen) {
    for (int64_t b = 0; b < c.problem.batch; ++b)
      for (int64_t h = 0; h < c.problem.heads_q; ++h)
        for (int64_t row = 0; row < chosen.rows(); ++row) {
          const auto list = chosen.row(b, h, row);
          ASSERT_EQ(std::ssize(list), topk_count(options, length_of(c, b)));
          const auto scores = scores_of(c, options.block_size, b, h, row);
          const int64_t first = std::min<int64_t>(
              std::ssize(scores), pieces(options.protected_prefix, options.block_size));
          double worst = INFINITY, best = -INFINITY;
          for (int64_t n = 0; n < std::ssize(scores); ++n) {
            const bool on = std::find(list.begin(), list.end(), n) != list.end();
            if (n < first) {
              EXPECT_TRUE(on) << "protected block " << n << " of row " << row;
            } else if (on) {
              worst = std::min(worst, scores[static_cast<size_t>(n)]);
            } else {
              best = std::max(best, scores[static_cast<size_t>(n)]);
            }
          }
          EXPECT_LE(best, worst + 3e-4 * std::max(1.0, std::abs(worst)))
              << "batch " << b << ", head " << h << ", row " << row;
        }
  }

  ExecutionContext context;
};

struct TopkCase {
  const char* problem;
  BlockTopk options;
};
const TopkCase kCases[] = {
    {"bf16 b1 h2 s2048 sk=4096 d128 scale=2", {0.8, 128, 0}},
    {"f16 b2 h4 hk=2 s700 sk=5003 d64 scale=3", {0.7, 128, 300}},
    {"bf16 b2 h2 s300 sk=3000 d96 kvlen=2999,1500 scale=2", {0.5, 128, 128}},
    {"bf16 b1 h3 hk=1 s517 sk=2600 d40 layout=bhsd scale=2", {0.9, 128, 0}},
    {"f16 b3 h1 s129 sk=2100 d128 kvlen=2100,0,37", {0.6, 128, 1}},
    {"bf16 b3 h2 s300 sk=1408 d64 kvlen=1408,1280,1152 scale=2", {0.25, 128, 0}},
    {"bf16 b1 h1 s16 sk=80000 d64 scale=4", {0.95, 128, 256}},
    {"bf16 b1 h2 s1000 sk=2500 d128 scale=2", {0.75, 64, 100}},
    {"f16 b2 h2 s333 sk=1999 d72 kvlen=1999,700 scale=2", {0.5, 64, 0}},
    {"bf16 b1 h2 s700 sk=4100 d128 scale=100", {0.8, 128, 0}},
    {"bf16 b1 h1 s17000 sk=2100 d64 scale=2", {0.6, 128, 0}},
};

TEST_F(GpuBlockTopk, ChoosesTheBestBlocks) {
  for (const TopkCase& test : kCases) {
    SCOPED_TRACE(test.problem);
    const DeviceCase c(problem(test.problem), kDevice);
    expect_best(c, test.options, choose(c, test.options));
  }
}

// The host's kernels choose from the same numbers in another order of rounding: where scores are
// not within rounding of each other the lists are the same.
TEST_F(GpuBlockTopk, AgreesWithTheHost) {
  for (const TopkCase& test : kCases) {
    SCOPED_TRACE(test.problem);
    const DeviceCase c(problem(test.problem), kDevice);
    const BlockMask device = choose(c, test.options);
    const BlockMask host =
        must(select_blocks(test.options, c.inputs.tensors(), c.problem, serial_executor()));
    const auto a = device.matrix(), b = host.matrix();
    ASSERT_EQ(a.size(), b.size());
    int64_t different = 0;
    for (size_t n = 0; n < a.size(); ++n) different += a[n] != b[n];
    // A block that changes places with another one counts twice.
    EXPECT_LE(static_cast<double>(different), 2 + 0.01 * static_cast<double>(host.active()));
    EXPECT_TRUE(std::ranges::equal(device.counts(), host.counts()));
  }
}

// Equal blocks tie to the bit; ties go to the block that comes first.
TEST_F(GpuBlockTopk, TiesGoToTheFirstBlock) {
  for (const int32_t block : {128, 64})
    for (const int64_t period : {1, 3}) {
      SCOPED_TRACE(std::to_string(block) + ", " + std::to_string(period));
      const DeviceCase c(problem("bf16 b1 h2 s600 sk=6144 d128 scale=2"), kDevice);
      const TensorView& k = c.inputs.tensors().k;
      const int64_t span = period * block;  // every `period` blocks repeat
      for (int64_t j = span; j < 6144; ++j)
        for (int64_t n = 0; n < 2 * 128; ++n)
          store_element(k.data, k.dtype, j * 256 + n,
                        load_element(k.data, k.dtype, (j % span) * 256 + n));
      must(c.device.refill(c.inputs.tensors()));
      const BlockTopk options{0.75, block, 0};
      const BlockMask device = choose(c, options);
      EXPECT_EQ(device,
                must(select_blocks(options, c.inputs.tensors(), c.problem, serial_executor())));
    }
}

TEST_F(GpuBlockTopk, ScoresThatCannotBeComparedLeaveTheFirstBlocks) {
  const DeviceCase c(problem("bf16 b1 h2 s600 sk=4096 d64"), kDevice);
  const AttentionTensors& t = c.inputs.tensors();
  // A query of row 2, head 0, and a key that head 1 sees.
  store_element(t.q.data, t.q.dtype, 2 * 128 * 2 * 64 + 5, NAN);
  store_element(t.k.data, t.k.dtype, 3000 * 2 * 64 + 64 + 9, INFINITY);
  must(c.device.refill(t));
  const BlockTopk options{0.7, 128, 0};
  const BlockMask chosen = choose(c, options);
  const auto expect_first = [&](int64_t head, int64_t row) {
    const auto list = chosen.row(0, head, row);
    for (int64_t n = 0; n < std::ssize(list); ++n)
      EXPECT_EQ(list[static_cast<size_t>(n)], n) << head << ' ' << row;
  };
  expect_first(0, 2);
  for (int64_t row = 0; row < chosen.rows(); ++row) expect_first(1, row);
}

TEST_F(GpuBlockTopk, LayersRunOverWhatTheyChoose) {
  for (const BackendName name : {backend::SPARGE_ATTN, backend::BLOCK_SPARSE_ATTN})
    for (const char* text : {"bf16 b1 h4 hk=2 s400 sk=2100 d128 lse=1 scale=2",
                             "f16 b2 h2 s300 sk=1500 d64 kvlen=1500,300 lse=1"}) {
      SCOPED_TRACE(text);
      const DeviceCase c(problem(text), kDevice);
      AttentionConfig config;
      AttentionSpec& spec = config.default_spec.emplace();
      spec.backend = name;
      spec.block_sparse.emplace();
      spec.block_sparse->selection = "block_topk";
      spec.block_sparse->sparsity = 0.6;
      const Attention layer = must(Attention::create({}, config));
      const auto receipt = layer.run(c.device.tensors(), c.options());
      ASSERT_TRUE(receipt.has_value()) << receipt.error().message;
      EXPECT_EQ((*receipt)->path, "cuda.block_sparse_sm90");
      c.download();
      const BlockMask mask = choose(c, {0.6, 128, 0});
      const TokenMask tokens(mask, c.problem);
      AttentionTensors dense = c.inputs.tensors();
      dense.mask = tokens.view;
      const auto executor = make_openmp_executor();
      auto oracle = backends::reference::compute_oracle(masked(c.problem), dense, *executor);
      ASSERT_TRUE(oracle.has_value()) << oracle.error().message;
      const auto agreement = backends::reference::compare_to_oracle(masked(c.problem), dense,
                                                                    *oracle, DataKind::random);
      EXPECT_TRUE(agreement.pass) << agreement.out.rel_l2 << ", LSE " << agreement.lse.max_abs;
    }
}

TEST_F(GpuBlockTopk, ACapturedSelectionFollowsItsInputs) {
  const DeviceCase c(problem("bf16 b1 h2 s600 sk=2100 d128 lse=1 scale=2"), kDevice);
  AttentionConfig config;
  config.default_spec.emplace().backend = backend::SPARGE_ATTN;
  const Attention layer = must(Attention::create({}, config));
  const auto stream = static_cast<cudaStream_t>(c.stream.get().handle);
  must(layer.run(c.device.tensors(), c.options()));
  must(cudaStreamSynchronize(stream));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  const auto captured = layer.run(c.device.tensors(), c.options());
  must(cudaStreamEndCapture(stream, &graph));
  ASSERT_TRUE(captured.has_value()) << captured.error().message;
  must(cudaGraphInstantiate(&exec, graph, 0));
  must(cudaGraphDestroy(graph));
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    Problem other = c.problem;
    other.seed = seed;
    const auto inputs = must(make_random_inputs(other));
    must(c.device.refill(inputs.tensors()));
    must(cudaGraphLaunch(exec, stream));
    must(c.device.download(inputs.tensors()));
    const auto replayed = bytes_of(inputs.tensors().out);
    must(layer.run(c.device.tensors(), c.options()));
    must(c.device.download(inputs.tensors()));
    EXPECT_EQ(replayed, bytes_of(inputs.tensors().out));
  }
  must(cudaGraphExecDestroy(exec));
}

}  // namespace
}  // namespace fovea
