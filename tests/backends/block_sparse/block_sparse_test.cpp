#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "tests/backends/block_sparse/harness.hpp"

namespace fovea {
namespace {

using namespace block_sparse_test;

std::vector<std::string> isas() {
  std::vector<std::string> out;
  for (const simd::Isa isa : simd::kIsas) {
    if (!simd::includes(simd::probe_isa(), isa)) continue;
    const std::string dtype = isa == simd::Isa::amx ? "bf16" : "f32";
    const auto report = backends::make_block_sparse_backend()->resolve(
        backend::BLOCK_SPARSE_ATTN, problem(dtype + " b1 h1 s64 d8 sparse=random"), nullptr,
        cpu_context(simd::name(isa)));
    if (report.built && report.path == "cpu." + std::string(simd::name(isa)))
      out.emplace_back(simd::name(isa));
  }
  return out;
}

// Every pattern, on lengths that end inside a block.
const std::vector<std::string>& patterns() {
  static const std::vector<std::string> all = {
      "s300 sparse=radial(frames=3,tokens=100,block=64)",
      "s331 sparse=radial(frames=3,tokens=100,block=64,decay=0.3,model=hunyuan)",
      "s520 sparse=radial(frames=4,tokens=130,block=128,rule=authors)",
      "s520 sparse=radial(frames=4,tokens=130,block=64,rule=telefuser,model=hunyuan)",
      "s300 sparse=local(frames=3,tokens=100,block=64,window=1)",
      "s333 sparse=local(frames=2,tokens=150,block=64,window=2)",
      "s512 sparse=local(frames=2,tokens=256,block=64,window=2,grid=2x2)",
      "s301 sk=413 sparse=random(density=0.3,q=64,kv=64)",
      "s301 sk=413 sparse=random(density=0.3,q=128,kv=64)",
      "s129 sk=650 sparse=random(density=0.5,q=64,kv=128)",
      "s65 sk=1 sparse=random(density=0.7,q=128,kv=128)",
  };
  return all;
}

class BlockSparseKernels : public testing::TestWithParam<std::string> {
 protected:
  ExecutionContext context = cpu_context(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Isa, BlockSparseKernels, testing::ValuesIn(isas()),
                         [](const auto& isa) { return isa.param; });

TEST_P(BlockSparseKernels, EqualsMaskedDenseForEveryPattern) {
  for (const std::string& pattern : patterns())
    for (const char* sizes : {"f32 b1 h1 d8", "bf16 b2 h4 hk=2 d64", "f16 b1 h3 hk=1 d40 dv=24",
                              "f32 b2 h2 d17 dv=33"}) {
      const std::string text = std::string(sizes) + " lse=1 " + pattern;
      expect_masked_dense(text, context);
    }
}

TEST_P(BlockSparseKernels, BlocksDifferPerItemAndHead) {
  for (const char* planes : {"batch=3", "heads=4", "batch=3,heads=4"})
    for (const char* dtype : {"f32", "bf16"})
      expect_masked_dense(std::string(dtype) +
                              " b3 h4 hk=2 s200 sk=270 d16 lse=1 sparse=random(density=0.4,q=64,"
                              "kv=64," +
                              planes + ") seed=5",
                          context);
}

TEST_P(BlockSparseKernels, IntersectsWithLengthsMasksCausalAndWindows) {
  for (const char* what :
       {"kvlen=270,100", "mask=keys", "mask=bool", "mask=bias", "mask=causal", "window=60,70",
        "mask=causal+keys kvlen=200,13", "mask=keys+causal window=90,0", "strides=fused_qkv sk=200",
        "layout=bhsd outlayout=bshd", "strides=expanded"}) {
    const std::string text = std::string("f32 b2 h2 s200 d16 lse=1 ") + what +
                             (std::string(what).find("sk=") == std::string::npos ? " sk=270" : "") +
                             " sparse=random(density=0.5,q=64,kv=64,batch=2,heads=2)";
    SCOPED_TRACE(text);
    const Problem p = problem(text);
    const auto inputs = make_random_inputs(p);
    ASSERT_TRUE(inputs.has_value()) << inputs.error().message;
    run_plan(*backends::make_block_sparse_backend(), backend::BLOCK_SPARSE_ATTN, p,
             inputs->tensors(), context);
    auto oracle = backends::reference::compute_oracle(p, inputs->tensors(), serial_executor(),
                                                      mask_of(p).get());
    ASSERT_TRUE(oracle.has_value()) << oracle.error().message;
    const auto agreement =
        backends::reference::compare_to_oracle(p, inputs->tensors(), *oracle, DataKind::random);
    EXPECT_TRUE(agreement.pass) << agreement.out.rel_l2 << ", LSE " << agreement.lse.max_abs;
  }
}

// Bug row 74: all blocks on is the dense kernel, to the bit.
TEST_P(BlockSparseKernels, BugRow74_AllBlocksOnIsDenseToTheBit) {
  for (const char* sizes :
       {"s300 sk=777", "s1 sk=1", "s64 sk=64", "s129 sk=257 kvlen=200,257", "s100 sk=600 mask=keys",
        "s200 sk=600 mask=causal+keys", "s200 sk=600 mask=bool window=300,20"})
    for (const char* dtype : {"f32", "f16", "bf16"})
      for (const char* blocks : {"q=64,kv=64", "q=128,kv=128", "q=64,kv=128", "q=128,kv=64"}) {
        const std::string text = std::string(dtype) + " b2 h4 hk=2 d24 lse=1 " + sizes +
                                 " sparse=random(density=1," + blocks + ")";
        SCOPED_TRACE(text);
        const Problem p = problem(text);
        const auto inputs = make_random_inputs(p);
        ASSERT_TRUE(inputs.has_value());
        const AttentionTensors& t = inputs->tensors();
        run_plan(*backends::make_block_sparse_backend(), backend::BLOCK_SPARSE_ATTN, p, t, context);
        const auto out = bytes_of(t.out);
        const auto lse = bytes_of(t.lse);
        Problem dense = p;
        dense.sparse.reset();
        run_plan(*backends::make_cpu_flash_backend(), backend::FLASH_ATTN, dense, t, context);
        EXPECT_EQ(out, bytes_of(t.out));
        EXPECT_EQ(lse, bytes_of(t.lse));
      }
}

TEST_P(BlockSparseKernels, InactiveBlocksMayHoldNan) {
  for (const char* dtype : {"f32", "bf16"}) {
    const Problem p = problem(std::string(dtype) +
                              " b2 h2 s200 sk=700 d16 lse=1 sparse=random(density=0.3,q=128,kv=64)"
                              " seed=7");
    const auto mask = mask_of(p);
    const auto inputs = make_random_inputs(p);
    ASSERT_TRUE(inputs.has_value());
    const AttentionTensors& t = inputs->tensors();
    const auto backend = backends::make_block_sparse_backend();
    run_plan(*backend, backend::BLOCK_SPARSE_ATTN, p, t, context);
    const auto clean = bytes_of(t.out);
    // Everything in blocks that no row lists.
    std::set<int32_t> listed;
    for (int64_t row = 0; row < mask->rows(); ++row)
      for (const int32_t block : mask->row(0, 0, row)) listed.insert(block);
    ASSERT_LT(listed.size(), static_cast<size_t>(mask->columns()));
    const size_t bytes = p.dtype.bits / 8;
    for (const TensorView* tensor : {&t.k, &t.v})
      for (int64_t b = 0; b < 2; ++b)
        for (int64_t j = 0; j < p.seq_kv; ++j)
          if (listed.count(static_cast<int32_t>(j / 64)) == 0)
            std::memset(
                static_cast<char*>(tensor->data) +
                    static_cast<size_t>(b * tensor->stride[0] + j * tensor->stride[1]) * bytes,
                0xff, static_cast<size_t>(2 * 16) * bytes);
    run_plan(*backend, backend::BLOCK_SPARSE_ATTN, p, t, context);
    EXPECT_EQ(clean, bytes_of(t.out));
  }
}

TEST_P(BlockSparseKernels, RandomBlockLists) {
  std::mt19937 random(2026);
  const auto pick = [&](std::initializer_list<int> of) {
    return std::to_string(*(of.begin() + random() % of.size()));
  };
  for (int round = 0; round < 60; ++round) {
    const int heads = 1 + static_cast<int>(random() % 3);
    const int group = 1 + static_cast<int>(random() % 2);
    const int batch = 1 + static_cast<int>(random() % 2);
    const std::string text =
        std::string(round % 2 == 0   ? "f32"
                    : round % 4 == 1 ? "bf16"
                                     : "f16") +
        " b" + std::to_string(batch) + " h" + std::to_string(heads * group) +
        " hk=" + std::to_string(heads) + " s" + std::to_string(1 + random() % 400) +
        " sk=" + std::to_string(1 + random() % 700) + " d" + pick({1, 8, 20, 64}) +
        " lse=1 sparse=random(" +
        "density=" + (random() % 5 == 0 ? "0" : "0." + std::to_string(1 + random() % 9)) +
        ",q=" + pick({64, 128}) + ",kv=" + pick({64, 128}) +
        ",batch=" + std::to_string(random() % 2 == 0 ? 1 : batch) +
        ",heads=" + std::to_string(random() % 2 == 0 ? 1 : heads * group) +
        ") seed=" + std::to_string(random() % 1000);
    expect_masked_dense(text, context);
  }
}

// q = k = 0 and v[j] = j: the output is the mean index of the keys that were read, the LSE the
// logarithm of their number.
class ClosedForm {
 public:
  ClosedForm(const std::string& text, const ExecutionContext& context)
      : p(problem(text)), inputs(make_random_inputs(p).value()) {
    const AttentionTensors& t = inputs.tensors();
    for (const TensorView* view : {&t.q, &t.k})
      std::fill_n(static_cast<float*>(view->data), view->numel(), 0.F);
    auto* v = static_cast<float*>(t.v.data);
    for (int64_t at = 0; at < t.v.numel(); ++at)
      v[at] = static_cast<float>(at / (p.heads_kv * p.dim_v) % p.seq_kv);
    run_plan(*backends::make_block_sparse_backend(), backend_of(p), p, t, context);
  }
  float out(int64_t batch, int64_t row, int64_t head = 0) const {
    return static_cast<const float*>(
        inputs.tensors().out.data)[((batch * p.seq_q + row) * p.heads_q + head) * p.dim_v];
  }
  float lse(int64_t batch, int64_t row, int64_t head = 0) const {
    return static_cast<const float*>(
        inputs.tensors().lse.data)[(batch * p.heads_q + head) * p.seq_q + row];
  }

  Problem p;
  RandomInputs inputs;
};

TEST_P(BlockSparseKernels, EmptyRowsAreZeroWithMinusInfinity) {
  const ClosedForm form("f32 b1 h1 s300 sk=200 d8 lse=1 sparse=random(density=0,q=64,kv=64)",
                        context);
  for (int64_t row = 0; row < 300; ++row) {
    EXPECT_EQ(form.out(0, row), 0);
    EXPECT_EQ(form.lse(0, row), -std::numeric_limits<float>::infinity());
  }
}

// Bug row 17: in the original 64 wide zero-filled keys of the last block took weight.
TEST_P(BlockSparseKernels, BugRow17_KeysBehindTheLastBlockTakeNoWeight) {
  const ClosedForm form("f32 b1 h1 s209 d8 lse=1 sparse=random(density=1,q=64,kv=64)", context);
  for (int64_t row = 0; row < 209; ++row) {
    EXPECT_NEAR(form.out(0, row), 104, 1e-4);
    EXPECT_NEAR(form.lse(0, row), std::log(209.0), 1e-5);
  }
}

// Bug row 18: lengths whose rest modulo 128 was between 65 and 127 aborted.
TEST_P(BlockSparseKernels, BugRow18_EveryRestOfALength) {
  for (int64_t length = 128; length < 257; ++length) {
    const ClosedForm form(
        "f32 b1 h1 s64 sk=" + std::to_string(length) + " d8 lse=1 sparse=random(density=1)",
        context);
    EXPECT_NEAR(form.out(0, 5), static_cast<double>(length - 1) / 2, 1e-3) << length;
  }
}

// Bug row 19: token counts that are no multiple of the block.
TEST_P(BlockSparseKernels, BugRow19_TokenCountsOffTheBlock) {
  for (const int64_t tokens : {60 + 4, 60 + 80, 60 + 96}) {
    const std::string frames = std::to_string(tokens);
    expect_masked_dense("f32 b1 h1 s" + std::to_string(5 * tokens) +
                            " d16 lse=1 sparse=radial(frames=5,tokens=" + frames + ")",
                        context);
  }
}

// Bug row 20: padding to whole blocks changed the softmax.
TEST_P(BlockSparseKernels, BugRow20_PaddingDoesNotChangeTheSoftmax) {
  const Problem p = problem("f32 b1 h1 s200 d8 lse=1 sparse=radial(frames=2,tokens=100)");
  const auto inputs = make_random_inputs(p);
  ASSERT_TRUE(inputs.has_value());
  const AttentionTensors& t = inputs->tensors();
  for (const TensorView* view : {&t.q, &t.k})
    std::fill_n(static_cast<float*>(view->data), view->numel(), 0.F);
  std::fill_n(static_cast<float*>(t.v.data), t.v.numel(), 1.F);
  run_plan(*backends::make_block_sparse_backend(), backend::RADIAL_ATTN, p, t, context);
  for (int64_t at = 0; at < t.out.numel(); ++at)
    EXPECT_EQ(static_cast<const float*>(t.out.data)[at], 1.F);
}

// Bug row 23: sparse paths that assert a batch of one.
TEST_P(BlockSparseKernels, BugRow23_ABatchOfTwoEqualsTwoCalls) {
  const Problem both = problem(
      "f32 b2 h2 s200 d16 lse=1 sparse=random(density=0.4,q=64,kv=64,batch=2,heads=2) seed=3");
  const auto inputs = make_random_inputs(both);
  ASSERT_TRUE(inputs.has_value());
  const AttentionTensors& t = inputs->tensors();
  const auto backend = backends::make_block_sparse_backend();
  run_plan(*backend, backend::BLOCK_SPARSE_ATTN, both, t, context);
  const auto out = bytes_of(t.out);
  const auto mask = mask_of(both);
  std::vector<uint8_t> joined;
  for (int64_t b = 0; b < 2; ++b) {
    Problem one = both;
    one.batch = 1;
    fill_strides(one);
    BlockMaskShape shape = mask->shape();
    shape.batch = 1;
    const std::vector<uint8_t> all = mask->matrix();
    const size_t half = all.size() / 2;
    ExecutionContext with_mask = context;
    with_mask.block_mask = std::make_shared<const BlockMask>(
        BlockMask::from_matrix(shape, std::span(all).subspan(static_cast<size_t>(b) * half, half))
            .value());
    one.sparse->parameters = {{"heads", "2"}, {"q", "64"}, {"kv", "64"}};
    AttentionTensors item = t;
    for (TensorView* view : {&item.q, &item.k, &item.v, &item.out, &item.lse}) {
      view->shape[0] = 1;
      view->data = static_cast<float*>(view->data) + b * view->stride[0];
    }
    run_plan(*backend, backend::BLOCK_SPARSE_ATTN, one, item, with_mask);
    const auto part = bytes_of(item.out);
    joined.insert(joined.end(), part.begin(), part.end());
  }
  EXPECT_EQ(out, joined);
}

TEST(BlockSparse, ListsOfACallAreReadInPlace) {
  const Problem p =
      problem("f32 b2 h2 s200 sk=300 d16 lse=1 sparse=mask(q=64,kv=128,most=4,heads=2)");
  const auto inputs = make_random_inputs(p);
  ASSERT_TRUE(inputs.has_value());
  AttentionTensors t = inputs->tensors();
  std::vector<int32_t> counts = {1, 0, 2, 3, 2, 1, 1, 1};
  std::vector<int32_t> indices(static_cast<size_t>(8 * 4), -7);
  const auto set = [&](size_t row, std::initializer_list<int32_t> blocks) {
    std::copy(blocks.begin(), blocks.end(), indices.begin() + static_cast<ptrdiff_t>(row * 4));
  };
  set(0, {2});
  set(2, {0, 2});
  set(3, {0, 1, 2});
  set(4, {1, 2});
  set(5, {0});
  set(6, {1});
  set(7, {2});
  t.block_counts = make_view(counts.data(), kI32, {1, 2, 4});
  t.block_indices = make_view(indices.data(), kI32, {1, 2, 4, 4});
  AttentionSpec spec;
  spec.backend = backend::BLOCK_SPARSE_ATTN;
  spec.block_sparse.emplace().selection = "mask";
  const auto backend = backends::make_block_sparse_backend();
  const Receipt receipt =
      run_plan(*backend, backend::BLOCK_SPARSE_ATTN, p, t, cpu_context(), &spec);
  EXPECT_FALSE(receipt.density.has_value());
  auto oracle = backends::reference::compute_oracle(p, t, serial_executor());
  ASSERT_TRUE(oracle.has_value()) << oracle.error().message;
  EXPECT_TRUE(backends::reference::compare_to_oracle(p, t, *oracle, DataKind::random).pass);

  // Values are checked before anything is written.
  const auto message = [&]() {
    auto plan = backend->plan(backend::BLOCK_SPARSE_ATTN, p, &spec, cpu_context());
    EXPECT_TRUE(plan.has_value());
    std::vector<char> memory((*plan)->workspace_bytes() + 256);
    void* start = memory.data();
    size_t space = memory.size();
    std::align(256, (*plan)->workspace_bytes(), start, space);
    const auto before = bytes_of(t.out);
    const Status status = (*plan)->run(t, {start, space}, {});
    EXPECT_EQ(before, bytes_of(t.out));
    return status ? std::string("ran") : status.error().message;
  };
  counts[3] = 5;
  EXPECT_EQ(message(), "attention: block_counts holds 5 at row 3 (accepted: 0..4)");
  counts[3] = 3;
  indices[13] = 0;
  EXPECT_EQ(message(), "attention: block_indices holds 0 at [3,1] (accepted: ascending, 0..2)");
  indices[13] = 3;
  EXPECT_EQ(message(), "attention: block_indices holds 3 at [3,1] (accepted: ascending, 0..2)");
  indices[13] = 1;
  t.block_indices = {};
  EXPECT_EQ(
      message(),
      "block_indices is missing, but the plan was made with it; plan again for other tensors");
}

// A mask per token, as blocks that are off, full or partial: the answer is that of the mask alone.
TEST_P(BlockSparseKernels, FullBlocksDoNotReadTheMask) {
  for (const char* dtype : {"f32", "bf16"})
    for (const char* blocks : {"q=64,kv=64", "q=128,kv=64", "q=64,kv=128"}) {
      const std::string sizes = std::string(dtype) + " b2 h2 s200 sk=500 d16 lse=1 ";
      SCOPED_TRACE(sizes + blocks);
      const Problem lists =
          problem(sizes + "mask=bool maskdims=bhq sparse=random(density=0.5,batch=2,heads=2," +
                  blocks + ")");
      const auto inputs = make_random_inputs(lists);
      ASSERT_TRUE(inputs.has_value());
      AttentionTensors t = inputs->tensors();
      // Whole blocks hidden and visible, and a band of single tokens between.
      auto* mask = static_cast<uint8_t*>(t.mask.data);
      for (int64_t at = 0; at < t.mask.numel(); ++at) {
        const int64_t j = at % 500, i = at / 500 % 200;
        mask[at] = j < 128 + 64 * (at / 100000 % 2) ? 1 : j < 300 && (i + j) % 3 != 0 ? 1 : 0;
      }
      ExecutionContext with_mask = context;
      BlockMaskShape shape = mask_of(lists)->shape();
      with_mask.block_mask =
          std::make_shared<const BlockMask>(BlockMask::from_token_mask(shape, t.mask).value());
      const BlockMask& classes = *with_mask.block_mask;
      EXPECT_GT(classes.partial_blocks(), 0);
      EXPECT_LT(classes.partial_blocks(), classes.active());
      EXPECT_LT(classes.density(), 1);
      run_plan(*backends::make_block_sparse_backend(), backend::BLOCK_SPARSE_ATTN, lists, t,
               with_mask);
      Problem dense = lists;
      dense.sparse.reset();
      auto oracle = backends::reference::compute_oracle(dense, t, serial_executor());
      ASSERT_TRUE(oracle.has_value()) << oracle.error().message;
      EXPECT_TRUE(backends::reference::compare_to_oracle(dense, t, *oracle, DataKind::random).pass);
      // Where blocks are full the mask may say anything: it is not read.
      const auto out = bytes_of(t.out);
      for (int64_t b = 0; b < 2; ++b)
        for (int64_t h = 0; h < 2; ++h)
          for (int64_t i = 0; i < 200; ++i)
            std::fill_n(mask + ((b * 2 + h) * 200 + i) * 500, 128, uint8_t{0});
      run_plan(*backends::make_block_sparse_backend(), backend::BLOCK_SPARSE_ATTN, lists, t,
               with_mask);
      EXPECT_EQ(out, bytes_of(t.out));
    }
}

TEST(BlockSparse, ChoosesBlocksDuringTheRun) {
  for (const char* text :
       {"f32 b2 h4 hk=2 s1100 sk=1400 d16 lse=1 sparse=topk(sparsity=0.7,block=64)",
        "bf16 b1 h2 s900 sk=2000 d64 lse=1 sparse=topk(sparsity=0.9,block=64,prefix=100)",
        "f16 b2 h1 s700 sk=2400 d32 lse=1 kvlen=1500,64 sparse=topk(sparsity=0.8)",
        "f32 b1 h1 s100 sk=90 d8 lse=1 sparse=topk"}) {
    SCOPED_TRACE(text);
    const Problem p = problem(text);
    const auto inputs = make_random_inputs(p);
    ASSERT_TRUE(inputs.has_value());
    const Receipt receipt = run_plan(*backends::make_block_sparse_backend(), backend::SPARGE_ATTN,
                                     p, inputs->tensors(), cpu_context());
    const BlockTopk topk = std::get<BlockTopk>(sparse::read_pattern(p).value());
    const auto mask = select_blocks(topk, inputs->tensors(), p, serial_executor());
    ASSERT_TRUE(mask.has_value()) << mask.error().message;
    if (!p.has_kv_lengths) {
      EXPECT_EQ(receipt.density, mask->density());
    }
    auto oracle =
        backends::reference::compute_oracle(p, inputs->tensors(), serial_executor(), &*mask);
    ASSERT_TRUE(oracle.has_value()) << oracle.error().message;
    EXPECT_TRUE(
        backends::reference::compare_to_oracle(p, inputs->tensors(), *oracle, DataKind::random)
            .pass);
  }
}

TEST(BlockSparse, ResultsDoNotDependOnTheWorkers) {
  const Problem p =
      problem("bf16 b2 h4 hk=2 s500 sk=1400 d32 lse=1 sparse=topk(sparsity=0.7,block=64)");
  const auto inputs = make_random_inputs(p);
  ASSERT_TRUE(inputs.has_value());
  const auto backend = backends::make_block_sparse_backend();
  run_plan(*backend, backend::SPARGE_ATTN, p, inputs->tensors(), cpu_context());
  const auto serial = bytes_of(inputs->tensors().out);
  const auto threads = make_openmp_executor(3);
  ExecutionContext context = cpu_context();
  context.executor = threads.get();
  run_plan(*backend, backend::SPARGE_ATTN, p, inputs->tensors(), context);
  EXPECT_EQ(serial, bytes_of(inputs->tensors().out));
}

TEST(BlockSparse, TheReferenceReadsTheSameBlocks) {
  const Problem p = problem(
      "f32 b2 h2 s200 sk=300 d16 lse=1 sparse=random(density=0.4,q=64,kv=64,batch=2,heads=2)");
  const auto inputs = make_random_inputs(p);
  ASSERT_TRUE(inputs.has_value());
  const Receipt receipt = run_plan(*backends::make_reference_backend(), backend::REFERENCE, p,
                                   inputs->tensors(), cpu_context());
  EXPECT_EQ(receipt.density, mask_of(p)->density());
  const TokenMask tokens(*mask_of(p), p);
  AttentionTensors dense = inputs->tensors();
  dense.mask = tokens.view;
  auto oracle = backends::reference::compute_oracle(masked(p), dense, serial_executor());
  ASSERT_TRUE(oracle.has_value()) << oracle.error().message;
  EXPECT_TRUE(
      backends::reference::compare_to_oracle(masked(p), dense, *oracle, DataKind::random).pass);
}

struct Refusal {
  BackendName name;
  const char* problem;
  ReasonCode code;
  const char* sentence;
};

TEST(BlockSparse, Refusals) {
  const Refusal cases[] = {
      {backend::RADIAL_ATTN, "f32 b1 h1 s256 d8", ReasonCode::sparse_state,
       "sparse_state none does not fit (needed: a SparseAttentionState), pass sparse_state with "
       "the "
       "call"},
      {backend::BLOCK_SPARSE_ATTN, "f32 b1 h1 s256 d8 sparse=radail(frames=2)", ReasonCode::sparse,
       "sparse radail is not supported, sparse pattern 'radail' is unknown (accepted: radial, "
       "local, "
       "random, topk, mask); did you mean 'radial'?"},
      {backend::RADIAL_ATTN, "f32 b1 h1 s256 d8 sparse=local(frames=2)", ReasonCode::sparse,
       "sparse local is not supported (accepted: radial)"},
      {backend::RADIAL_ATTN, "f32 b1 h1 s256 sk=300 d8 sparse=radial(frames=2)", ReasonCode::sparse,
       "sparse radial is not supported, radial is for self-attention: seq_q 256 and seq_kv 300 "
       "differ; give roles of cross-attention a dense backend"},
      {backend::RADIAL_ATTN, "f32 b1 h1 s256 d8 sparse=radial(frames=3)", ReasonCode::sparse,
       "sparse radial is not supported, radial: 3 frames of 85 tokens are 255, the sequence has "
       "256; "
       "state the tokens of a frame"},
      {backend::RADIAL_ATTN, "f32 b1 h1 s256 d8 sparse=radial(frames=2,dceay=1)",
       ReasonCode::sparse,
       "sparse radial is not supported, radial has no parameter 'dceay' (accepted: frames, tokens, "
       "block, decay, model, rule); did you mean 'decay'?"},
      {backend::BLOCK_SPARSE_ATTN, "f32 b1 h1 s256 d8 sparse=random(q=256)", ReasonCode::sparse,
       "sparse random is not supported, random: q '256' is not accepted (accepted: 64, 128)"},
      {backend::SPARGE_ATTN, "f32 b1 h1 s256 d8 mask=causal", ReasonCode::window,
       "window causal is not supported (accepted: none), with blocks chosen from the data; give a "
       "block mask instead"},
      {backend::SPARGE_ATTN, "f32 b1 h1 s256 d8 mask=keys", ReasonCode::mask,
       "mask tensor is not supported (accepted: none), with blocks chosen from the data; give a "
       "block "
       "mask instead"},
      {backend::BLOCK_SPARSE_ATTN, "f32 b1 h1 s256 d8 docs=100:100,156:156 sparse=random",
       ReasonCode::packed, "packed documents are not supported"},
  };
  const auto backend = backends::make_block_sparse_backend();
  for (const Refusal& c : cases) {
    SCOPED_TRACE(c.problem);
    const Problem p = problem(c.problem);
    const auto report = backend->resolve(c.name, p, nullptr, cpu_context());
    ASSERT_EQ(report.support, SupportStatus::unsupported);
    EXPECT_EQ(report.reasons.back().code, c.code);
    EXPECT_EQ(sentence(report.reasons), c.sentence);
    const auto plan = backend->plan(c.name, p, nullptr, cpu_context());
    ASSERT_FALSE(plan.has_value());
    EXPECT_EQ(plan.error().reasons, report.reasons);
  }
}

TEST(BlockSparse, OptionsWithoutAKernelAreRefused) {
  const auto backend = backends::make_block_sparse_backend();
  const auto refusal = [&](const AttentionSpec& spec, const char* text) {
    return sentence(backend->resolve(spec.backend, problem(text), &spec, cpu_context()).reasons);
  };
  AttentionSpec spec;
  spec.backend = backend::RADIAL_ATTN;
  spec.radial.emplace().use_sage_attention = true;
  EXPECT_EQ(refusal(spec, "f32 b1 h1 s256 d8 sparse=radial(frames=2)"),
            "use_sage_attention true is not supported (accepted: false), there is no quantised "
            "kernel that reads block lists");
  spec = {};
  spec.backend = backend::LOCAL_SPARSE_ATTN;
  spec.local_sparse.emplace().topk = 3;
  EXPECT_EQ(refusal(spec, "f32 b1 h1 s256 d8 sparse=local(frames=2)"),
            "local_sparse.topk 3 is not supported (accepted: unset), all blocks inside the window "
            "are kept");
  spec = {};
  spec.backend = backend::SPARGE_ATTN;
  spec.block_sparse.emplace().start_step = 3;
  EXPECT_EQ(
      refusal(spec, "f32 b1 h1 s256 d8"),
      "sparse_state none does not fit (needed: a SparseAttentionState), pass sparse_state with "
      "the call: start_step, end_step and skip_layers need the step and the layer");
  spec = {};
  spec.backend = backend::BLOCK_SPARSE_ATTN;
  spec.block_sparse.emplace();
  EXPECT_EQ(refusal(spec, "f32 b1 h1 s256 d8 sparse=mask(most=2)"),
            "block_mask given is not supported (accepted: none with selection block_topk), set "
            "block_sparse.selection to mask");
  spec.block_sparse->selection = "mask";
  EXPECT_EQ(refusal(spec, "f32 b1 h1 s256 d8"),
            "block_mask none is not supported (accepted: a BlockMask or block lists), pass "
            "block_mask with the call, or set selection to block_topk");
}

TEST(BlockSparse, OtherDevicesAreRefused) {
  ExecutionContext context;
  context.facts = DeviceFacts(PlatformId::cuda);
  context.facts.set("sm", "90");
  context.local = false;
  const auto report = backends::make_block_sparse_backend()->resolve(
      backend::SPARGE_ATTN, problem("f32 b1 h1 s256 d8"), nullptr, context);
  EXPECT_EQ(report.support, SupportStatus::unsupported);
  EXPECT_EQ(report.reasons.front().code, ReasonCode::platform);
}

}  // namespace
}  // namespace fovea
