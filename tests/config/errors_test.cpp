// The text of every kind of refusal, as a user reads it.
#include <gtest/gtest.h>

#include <string>

#include "src/core/text.hpp"
#include "tests/config/config_matchers.hpp"
#include "tests/golden/golden.hpp"

namespace fovea {
namespace {

struct Case {
  const char* text;
  std::vector<ConfigFlag> flags = {};
  const char* shorthand = "";
};

TEST(ConfigErrors, texts_are_as_agreed) {
  const Case cases[] = {
      {R"({"defualt": "FA3"})"},
      {R"({"backend": "FA3"})"},
      {R"({"default": "FLASH_ATN"})"},
      {R"({"default": 3})"},
      {R"({"default": {"strictness": "prefer"}})"},
      {R"({"default": {"backend": "FA3", "strictness": "prefers"}})"},
      {R"({"default": {"backend": "FA3", "allow_copy": 1}})"},
      {R"({"default": {"backend": "FA3", "provider": "nvidia"}})"},
      {R"({"default": {"backend": "FA3", "scale": "0.5"}})"},
      {R"({"default": {"backend": "FA3", "scale": 0}})"},
      {R"({"default": {"backend": "FA3", "dropout": 0.1}})"},
      {R"({"default": {"backend": "FA3", "quant": {"dtype_qk": "int8"}}})"},
      {R"({"default": {"backend": "TRTLLM_ATTN", "quant": {"dtype_qk": "fp8"}}})"},
      {R"({"default": {"backend": "TRTLLM_ATTN", "quant": {"dtype_qk": "float16"}}})"},
      {R"({"default": {"backend": "TRTLLM_ATTN", "quant": {"dtype_qk": "int8", "q_block_size": 8}}})"},
      {R"({"default": {"backend": "TRTLLM_ATTN", "skip_softmax": {"threshold": 1, "target_sparsity": 0.5}}})"},
      {R"({"default": {"backend": "RAINFUSION_ATTN", "block_sparse": {"skip_layers": "0-2,x"}}})"},
      {R"({"default": {"backend": "RAINFUSION_ATTN", "block_sparse": {"sparsity": 1.5}}})"},
      {R"({"default": {"backend": "RAINFUSION_ATTN", "block_sparse": {"start_step": -1}}})"},
      {R"({"default": {"backend": "SPARGE_ATTN", "block_sparse": {"selection": "mask"}}})"},
      {R"({"default": {"backend": "AITER_QUANT_ATTN", "aiter_quant": {"format": "fp7"}}})"},
      {R"({"default": {"backend": "FASTVIDEO_VSA", "fastvideo_vsa_topk": 0}})"},
      {R"({"default": {"backend": "RADIAL_ATTN", "radial": {"decay_factor": 0, "block_size": 96}}})"},
      {R"({"default": {"backend": "RADIAL_ATTN", "radial": {"dense_backend": "SPARGE_ATTN"}}})"},
      {R"({"default": {"backend": "FA3", "extra": {"MINE": {"a": 1}}}})"},
      {R"({"default": {"backend": "auto", "quant": {}}})"},
      {R"({"per_role": {"self": {}}})"},
      {R"({"per_role": {"self": {"bakend": "FA3"}}})"},
      {R"({"per_role": {"ltx2": {"backend": "FA3", "audio": "FA2"}}})"},
      {R"({"default": "FA3", "default": "FA2"})"},
      {R"({"attn_impl": "RADIAL_ATTN"})"},
      {R"({"attn_impl": "FA2", "sparse_config": {"sparse_impl": "radial"}})"},
      {R"({"default": NaN})"},
      {"{\n  \"default\": \"FA3\",\n}"},
      {"{}", {{"default.bakend", "FA3"}}},
      {"{}", {{"default.backend", "FA3"}, {"default.scale", "big"}}},
      {"{}", {{"per_role.backend", "FA3"}}},
      {R"({"default": "FA3"})", {}, "FA2"},
      {"{}", {}, "FA33"},
      {R"({"default": {"backend": "FLASH_ATTN", "allow_copy": 1, "quant": {"typo": 1}}, "per_role": {"a": 3}})"},
  };
  std::string all;
  for (const Case& each : cases) {
    ConfigSources sources{each.text, "attn.json", each.flags, each.shorthand, {}};
    all += text::concat("> ", sources.text);
    for (const ConfigFlag& flag : each.flags) {
      all += text::concat(" --config.", flag.path, ' ', flag.value);
    }
    if (!sources.backend.empty()) all += text::concat(" --backend ", sources.backend);
    all += text::concat('\n', refused(sources), "\n\n");
  }
  golden::expect_equal("config_errors.txt", all);
}

}  // namespace
}  // namespace fovea
