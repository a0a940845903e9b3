// Row 60 of the bug reports: a switch that does nothing. Every field of every table changes what
// runs, what its kernel is handed, or is refused.
#include <set>

#include "src/config/fields.hpp"
#include "tests/select/vendor_double.hpp"

namespace fovea {
namespace {

using test::VendorCall;
using test::VendorDouble;

// Two settings of one field. `entry` is what both have in common.
struct Knob {
  const char* block;  // "": a field of the entry itself
  const char* field;
  const char* entry;
  const char* one;
  const char* other;
};

std::string entry_of(const Knob& knob, const char* value) {
  std::string text = std::string("{\"default\": {") + knob.entry;
  if (*knob.block == 0) return text + ", \"" + knob.field + "\": " + value + "}}";
  return text + ", \"" + knob.block + "\": {\"" + knob.field + "\": " + value + "}}}";
}

// Everything that a run of six steps and four layers would show, and nothing of the configuration.
std::string shown(const std::string& json, PlatformId platform, const char* facts,
                  const char* problem) {
  const auto config = parse_config(json);
  if (!config) return "refused: " + config.error().message;
  ExecutionContext context;
  context.facts = parse_facts(platform, facts).value();
  context.local = platform == PlatformId::cpu;
  ExplainQuery query;
  query.problem = parse_problem(problem).value();
  query.video = VideoShape{16, 1024};
  const auto e = explain_schedule(*config, nullptr, make_platform(context.facts), {query},
                                  {{6, 4, {}}}, context);
  if (!e) return "refused: " + e.error().message;
  std::string text = e->refused ? "refused" : "";
  for (const ExplainEntry& entry : e->entries) {
    const ExecutionPathResult& r = entry.report;
    text += "\n" + entry.layers + "/" + entry.steps + " " + name(r.backend) + " " + r.path + " " +
            std::string(name(r.support)) + (r.lossy ? " lossy" : "") + " " +
            (r.density ? std::to_string(*r.density) : "?") + " " +
            std::to_string(r.workspace_bytes) + " " + sentence(r.reasons);
    for (const TrailEntry& step : entry.trail)
      text += "; " + name(step.backend) + " " + std::string(name(step.verdict));
  }
  return text;
}

constexpr Knob kOwnKernels[] = {
    {"", "backend", R"("strictness": "require")", R"("FLASH_ATTN")", R"("REFERENCE")"},
    {"", "strictness", R"("backend": "FLASH_ATTN_3")", R"("require")", R"("prefer")"},
    {"", "provider", R"("backend": "FLASH_ATTN")", R"("fovea")", R"("cudnn")"},
    {"", "dropout", R"("backend": "FLASH_ATTN")", "0", "0.1"},
    {"", "from_factory", R"("backend": "RADIAL_ATTN")", "false", "true"},
    {"block_sparse", "sparsity", R"("backend": "SPARGE_ATTN")", "0.25", "0.75"},
    {"block_sparse", "start_step", R"("backend": "SPARGE_ATTN")", "0", "2"},
    {"block_sparse", "end_step", R"("backend": "SPARGE_ATTN")", "0", "2"},
    {"block_sparse", "precision", R"("backend": "SPARGE_ATTN")", R"("bf16")", R"("fp8")"},
    {"block_sparse", "skip_layers", R"("backend": "SPARGE_ATTN")", "[]", "[1]"},
    {"block_sparse", "selection", R"("backend": "BLOCK_SPARSE_ATTN")", R"("mask")",
     R"("block_topk")"},
    {"block_sparse", "block_size", R"("backend": "SPARGE_ATTN")", "64", "128"},
    {"block_sparse", "protected_prefix", R"("backend": "SPARGE_ATTN")", "0", "700"},
    {"radial", "dense_timesteps", R"("backend": "RADIAL_ATTN")", "1", "3"},
    {"local_sparse", "dense_timesteps", R"("backend": "LOCAL_SPARSE_ATTN")", "1", "3"},
};

// With the first steps dense, which the fields below do not concern.
constexpr Knob kPatterns[] = {
    {"radial", "decay_factor", "", "0.2", "4"},
    {"radial", "dense_layers", "", "0", "2"},
    {"radial", "block_size", "", "64", "128"},
    {"radial", "rule", "", R"("radial")", R"("telefuser")"},
    {"radial", "dense_backend", "", R"("FLASH_ATTN")", R"("REFERENCE")"},
    {"radial", "use_sage_attention", "", "false", "true"},
    {"local_sparse", "local_window_size", "", "2", "6"},
    {"local_sparse", "dense_layers", "", "0", "2"},
    {"local_sparse", "block_size", "", "64", "128"},
    {"local_sparse", "topk", "", "1", "2"},
    {"local_sparse", "dense_backend", "", R"("FLASH_ATTN")", R"("REFERENCE")"},
    {"local_sparse", "use_sage_attention", "", "false", "true"},
};

// Fields that kernels of packages read, with the device they need.
struct PackageKnob {
  Knob knob;
  const char* package;
  PlatformId platform;
  const char* facts;
};
constexpr const char* kBlackwell =
    "sm=100,cuda=13.0,trtllm=1,flashinfer=0.6.18,flashinfer_prefill=1";
constexpr PackageKnob kPackages[] = {
    {{"quant", "dtype_qk", R"("backend": "TRTLLM_ATTN")", R"("int8")", R"("fp8_e4m3")"},
     "flashinfer",
     PlatformId::cuda,
     kBlackwell},
    {{"quant", "dtype_vo", R"("backend": "FLASHINFER_ATTN")", R"("bfloat16")", R"("fp8_e4m3")"},
     "flashinfer",
     PlatformId::cuda,
     kBlackwell},
    {{"quant", "flashinfer_backend", R"("backend": "FLASHINFER_ATTN")", R"("fa2")", R"("fa3")"},
     "flashinfer",
     PlatformId::cuda,
     kBlackwell},
    {{"aiter_quant", "format", R"("backend": "AITER_QUANT_ATTN")", R"("fp8")", R"("i8fp8")"},
     "aiter",
     PlatformId::rocm,
     "gfx=gfx942,aiter=0.1.7"},
    {{"quant", "q_block_size", R"("backend": "TRTLLM_ATTN")", R"(1, "dtype_qk": "int8")",
      R"(4, "dtype_qk": "int8")"},
     "flashinfer",
     PlatformId::cuda,
     kBlackwell},
    {{"quant", "k_block_size", R"("backend": "TRTLLM_ATTN")", R"(4, "dtype_qk": "int8")",
      R"(16, "dtype_qk": "int8")"},
     "flashinfer",
     PlatformId::cuda,
     kBlackwell},
    {{"", "fastvideo_vsa_topk", R"("backend": "FASTVIDEO_VSA")", "8", "16"},
     "fastvideo_kernel",
     PlatformId::cuda,
     "sm=90,cuda=13.0,fastvideo_kernel=0.3.5"},
    {{"skip_softmax", "threshold", R"("backend": "TRTLLM_ATTN")", "0.01", "0.02"},
     "flashinfer",
     PlatformId::cuda,
     kBlackwell},
};

// What the kernel was handed, or why it was not asked.
std::string handed(const AttentionConfig& config, const PackageKnob& p) {
  VendorDouble vendor(p.package);
  const Attention layer = test::vendor_layer(p.platform, p.facts, config);
  VendorCall call("bf16 b1 h2 s16 d128");
  const auto ran = call.run(layer);
  if (!ran) return "refused: " + ran.error().message;
  return vendor.last().spec ? to_json(*vendor.last().spec) : "nothing";
}

std::string label(const Knob& knob) {
  return std::string(knob.block) + (*knob.block == 0 ? "" : ".") + knob.field;
}

TEST(Knobs, BugRow60_every_one_changes_what_is_shown_or_is_refused) {
  const char* problem = "f32 b1 h2 s16384 d64";
  std::vector<Knob> knobs(std::begin(kOwnKernels), std::end(kOwnKernels));
  for (const Knob& knob : knobs) {
    SCOPED_TRACE(label(knob));
    EXPECT_NE(shown(entry_of(knob, knob.one), PlatformId::cpu, "isa=avx2", problem),
              shown(entry_of(knob, knob.other), PlatformId::cpu, "isa=avx2", problem));
  }
  for (const Knob& knob : kPatterns) {
    SCOPED_TRACE(label(knob));
    const bool radial = std::string_view(knob.block) == "radial";
    const auto entry = [&](const char* value) {
      return std::string("{\"default\": {\"backend\": \"") +
             (radial ? "RADIAL_ATTN" : "LOCAL_SPARSE_ATTN") + "\", \"" + knob.block +
             "\": {\"dense_timesteps\": 1, \"" + knob.field + "\": " + value + "}}}";
    };
    EXPECT_NE(shown(entry(knob.one), PlatformId::cpu, "isa=avx2", problem),
              shown(entry(knob.other), PlatformId::cpu, "isa=avx2", problem));
  }
  for (const PackageKnob& p : kPackages) {
    SCOPED_TRACE(label(p.knob));
    const auto one = parse_config(entry_of(p.knob, p.knob.one));
    const auto other = parse_config(entry_of(p.knob, p.knob.other));
    ASSERT_TRUE(one && other);
    EXPECT_EQ(handed(*one, p), to_json(*one->default_spec));
    EXPECT_NE(handed(*one, p), handed(*other, p));
  }
}

// A permission counts where a kernel needs it.
TEST(Knobs, BugRow60_copies_are_made_by_permission_only) {
  const char* question = "bf16 b2 h4 s64 d64 kvlen=?";
  const auto entry = [](const char* value) {
    return std::string(R"({"default": {"backend": "CUDNN_ATTN", "allow_copy": )") + value + "}}";
  };
  const char* facts = "sm=90,cuda=13.0,cudnn=9.19";
  EXPECT_EQ(shown(entry("false"), PlatformId::cuda, facts, question).find("refused"), 0U);
  EXPECT_NE(shown(entry("true"), PlatformId::cuda, facts, question).find("refused"), 0U);
}

// The tables above, the answers that values show (scale and is_causal in bug_rows_test.cpp) and the
// fields that tests of their own cover are all fields there are.
TEST(Knobs, BugRow60_no_field_is_left_out) {
  std::set<std::string> covered = {"allow_copy", "scale", "is_causal",
                                   "skip_softmax.target_sparsity",
                                   "skip_softmax.disabled_until_timestep"};
  for (const Knob& knob : kOwnKernels) covered.insert(label(knob));
  for (const Knob& knob : kPatterns) covered.insert(label(knob));
  for (const PackageKnob& p : kPackages) covered.insert(label(p.knob));
  for (const config::Field& field : config::spec_fields())
    EXPECT_EQ(covered.count(std::string(field.name)), 1U) << field.name;
  for (const config::Block& block : config::blocks())
    for (const config::Field& field : block.fields) {
      const std::string name = std::string(block.name) + '.' + std::string(field.name);
      EXPECT_EQ(covered.count(name), 1U) << name;
    }
}

}  // namespace
}  // namespace fovea
