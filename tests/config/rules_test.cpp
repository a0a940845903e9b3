#include "src/config/rules.hpp"

#include <gtest/gtest.h>

#include "src/config/fields.hpp"
#include "tests/config/config_matchers.hpp"

namespace fovea::config {
namespace {

std::string fault(const AttentionSpec& spec) {
  const auto status = validate(spec);
  return status ? "" : status.error().message;
}

AttentionSpec with(BackendName backend) {
  AttentionSpec spec;
  spec.backend = backend;
  return spec;
}

// Every block on every built-in backend: taken by its owners, refused by name on all others.
TEST(Rules, every_block_is_refused_by_every_backend_that_does_not_own_it) {
  size_t taken = 0;
  for (const BackendNameInfo& row : backend_names()) {
    for (const Block& block : blocks()) {
      AttentionSpec spec = with(row.name);
      block.emplace(spec);
      if (contains(block.owners, row.name)) {
        EXPECT_EQ("", fault(spec)) << row.canonical << ' ' << block.name;
        ++taken;
        continue;
      }
      const auto status = validate(spec);
      ASSERT_FALSE(status) << row.canonical << " took " << block.name;
      const std::string owners = list_names(block.owners);
      const std::string remedy = (block.owners.size() == 1 ? "use " : "use one of ") + owners;
      EXPECT_EQ("attention spec: " + std::string(block.name) + ": " + std::string(row.canonical) +
                    " does not take " + std::string(block.name) + "; it belongs to " + owners +
                    "; remove it or " + remedy,
                status.error().message);
      ASSERT_EQ(1u, status.error().reasons.size());
      EXPECT_EQ(ReasonCode::option_owner, status.error().reasons[0].code);
      EXPECT_EQ(owners, status.error().reasons[0].accepted);
    }
  }
  EXPECT_EQ(2u + 1u + 2u + 3u + 1u + 1u, taken);
}

TEST(Rules, topk_belongs_to_video_sparse_attention) {
  AttentionSpec spec = with(backend::FASTVIDEO_VSA);
  spec.fastvideo_vsa_topk = 1;
  EXPECT_EQ("", fault(spec));
  spec.fastvideo_vsa_topk = 0;
  EXPECT_EQ("attention spec: fastvideo_vsa_topk: expected an integer of at least 1, found 0",
            fault(spec));
  spec = with(backend::FLASH_ATTN);
  spec.fastvideo_vsa_topk = 8;
  EXPECT_TRUE(has(fault(spec), "it belongs to FASTVIDEO_VSA"));
}

TEST(Rules, skip_softmax_takes_one_way_of_choosing) {
  AttentionSpec spec = with(backend::TRTLLM_ATTN);
  spec.skip_softmax.emplace();
  EXPECT_EQ("", fault(spec)) << "a block without a choice is switched off";
  spec.skip_softmax->threshold = 0.5;
  EXPECT_EQ("", fault(spec));
  spec.skip_softmax->disabled_until_timestep = 0.86;
  EXPECT_EQ("", fault(spec));
  spec.skip_softmax->target_sparsity = 0.5;
  EXPECT_TRUE(has(fault(spec), "threshold and target_sparsity exclude each other"));
  spec.skip_softmax->threshold.reset();
  EXPECT_EQ("", fault(spec));
  spec.skip_softmax->target_sparsity.reset();
  EXPECT_TRUE(has(fault(spec), "means nothing without threshold or target_sparsity"));
}

TEST(Rules, skip_softmax_and_quant_coexist) {
  AttentionSpec spec = with(backend::TRTLLM_ATTN);
  spec.skip_softmax.emplace().target_sparsity = 0.65;
  spec.quant.emplace().dtype_qk = "fp8_e4m3";
  EXPECT_EQ("", fault(spec));
}

TEST(Rules, each_backend_narrows_quant) {
  struct Case {
    BackendName backend;
    const char* qk;
    const char* vo;
    bool taken;
  };
  const Case cases[] = {
      {backend::TRTLLM_ATTN, "int8", nullptr, true},
      {backend::TRTLLM_ATTN, "fp8_e4m3", "fp8_e4m3", true},
      {backend::TRTLLM_ATTN, "float16", nullptr, false},
      {backend::TRTLLM_ATTN, "bfloat16", nullptr, false},
      {backend::TRTLLM_ATTN, "int8", "int8", false},
      {backend::TRTLLM_ATTN, "int8", "float16", false},
      {backend::TRTLLM_ATTN, nullptr, "fp8_e4m3", false},
      {backend::FLASHINFER_ATTN, "float16", nullptr, true},
      {backend::FLASHINFER_ATTN, "bfloat16", "fp8_e4m3", true},
      {backend::FLASHINFER_ATTN, nullptr, "bfloat16", true},
      {backend::FLASHINFER_ATTN, "int8", nullptr, false},
      {backend::FLASHINFER_ATTN, "fp8_e4m3", nullptr, false},
      {backend::FLASHINFER_ATTN, "float16", "int8", false},
  };
  for (const Case& each : cases) {
    AttentionSpec spec = with(each.backend);
    spec.quant.emplace();
    if (each.qk != nullptr) spec.quant->dtype_qk = each.qk;
    if (each.vo != nullptr) spec.quant->dtype_vo = each.vo;
    EXPECT_EQ(each.taken, fault(spec).empty())
        << name(each.backend) << ' ' << to_json(spec) << ' ' << fault(spec);
  }
}

TEST(Rules, quant_settings_without_effect_are_refused) {
  AttentionSpec spec = with(backend::TRTLLM_ATTN);
  spec.quant.emplace().q_block_size = 4;
  EXPECT_TRUE(has(fault(spec), "mean nothing without dtype_qk"));
  spec.quant->dtype_qk = "int8";
  EXPECT_EQ("", fault(spec));
  spec.quant->flashinfer_backend = "fa3";
  EXPECT_TRUE(has(fault(spec), "flashinfer_backend; it belongs to FLASHINFER_ATTN"));
  spec = with(backend::FLASHINFER_ATTN);
  spec.quant.emplace().flashinfer_backend = "fa3";
  EXPECT_EQ("", fault(spec)) << "the kernel choice alone is enough";
  spec.quant->dtype_qk = "float16";
  spec.quant->k_block_size = 4;
  EXPECT_TRUE(has(fault(spec),
                  "k_block_size: FLASHINFER_ATTN does not take k_block_size; it belongs to "
                  "TRTLLM_ATTN; remove it or use TRTLLM_ATTN"));
}

TEST(Rules, each_backend_narrows_block_sparse) {
  struct Case {
    BackendName backend;
    const char* precision;
    const char* selection;
    int64_t block;
    bool taken;
  };
  const Case cases[] = {
      {backend::RAINFUSION_ATTN, "fp8", "block_topk", 128, true},
      {backend::RAINFUSION_ATTN, "mix", "block_topk", 128, true},
      {backend::RAINFUSION_ATTN, "bf16", "block_topk", 64, false},
      {backend::RAINFUSION_ATTN, "bf16", "mask", 128, false},
      {backend::BLOCK_SPARSE_ATTN, "bf16", "mask", 64, true},
      {backend::BLOCK_SPARSE_ATTN, "bf16", "block_topk", 128, true},
      {backend::BLOCK_SPARSE_ATTN, "fp8", "block_topk", 128, false},
      {backend::SPARGE_ATTN, "bf16", "block_topk", 64, true},
      {backend::SPARGE_ATTN, "bf16", "mask", 128, false},
      {backend::SPARGE_ATTN, "mix", "block_topk", 128, false},
  };
  for (const Case& each : cases) {
    AttentionSpec spec = with(each.backend);
    BlockSparseOptions& sparse = spec.block_sparse.emplace();
    sparse.precision = each.precision;
    sparse.selection = each.selection;
    sparse.block_size = each.block;
    EXPECT_EQ(each.taken, fault(spec).empty()) << to_json(spec) << ' ' << fault(spec);
  }
}

TEST(Rules, the_dense_backend_of_a_sparse_one_is_dense) {
  for (const BackendNameInfo& row : backend_names()) {
    AttentionSpec radial = with(backend::RADIAL_ATTN);
    radial.radial.emplace().dense_backend = row.name;
    AttentionSpec local = with(backend::LOCAL_SPARSE_ATTN);
    local.local_sparse.emplace().dense_backend = row.name;
    EXPECT_EQ(is_sparse(row.name), !fault(radial).empty()) << row.canonical;
    EXPECT_EQ(is_sparse(row.name), !fault(local).empty()) << row.canonical;
  }
  AttentionSpec spec = with(backend::RADIAL_ATTN);
  spec.radial.emplace().dense_backend = backend::SPARGE_ATTN;
  EXPECT_EQ(
      "attention spec: radial.dense_backend: SPARGE_ATTN is sparse itself; name a dense backend "
      "such as FLASH_ATTN",
      fault(spec));
}

TEST(Rules, a_spec_made_by_hand_is_checked_like_a_read_one) {
  AttentionSpec spec = with(backend::FLASH_ATTN);
  spec.scale = std::numeric_limits<double>::quiet_NaN();
  spec.provider = "nvidia";
  spec.strictness = static_cast<Strictness>(7);
  EXPECT_TRUE(has(fault(spec), "scale: expected a finite number above 0, found nan"));
  EXPECT_TRUE(has(fault(spec), "provider: expected one of fovea, cudnn, package"));
  EXPECT_TRUE(has(fault(spec), "strictness: expected one of require, prefer"));
  EXPECT_EQ("", fault(AttentionSpec{}));
  EXPECT_TRUE(has(fault(with(BackendName(60000))), "is not known"));
  AttentionSpec rainfusion = with(backend::RAINFUSION_ATTN);
  rainfusion.block_sparse.emplace().skip_layers = {3, -1};
  EXPECT_TRUE(has(fault(rainfusion), "block_sparse.skip_layers[1]: expected a layer"));
  rainfusion.block_sparse->skip_layers = {};
  rainfusion.block_sparse->precision = "";
  EXPECT_TRUE(has(fault(rainfusion), "block_sparse.precision"));
}

TEST(Rules, factory_specs_are_preferences) {
  AttentionSpec spec = with(backend::RADIAL_ATTN);
  spec.from_factory = true;
  EXPECT_TRUE(has(fault(spec), "needs strictness prefer"));
  spec.strictness = Strictness::prefer;
  EXPECT_EQ("", fault(spec));
  spec.backend = backend::FLASH_ATTN;
  EXPECT_TRUE(has(fault(spec), "from_factory: FLASH_ATTN does not take from_factory"));
}

}  // namespace
}  // namespace fovea::config
