// The three configurations of the attention guide, made by its factories, on one call each: dense,
// radial for long videos, quantised. What this machine cannot run prints its refusal.
#include <cstdio>
#include <string>
#include <vector>

#include "fovea/fovea.hpp"
#include "fovea/sparse.hpp"

namespace {

using fovea::AttentionConfig;

// A short video: 4 latent frames of 192 tokens, one head.
constexpr int64_t kFrames = 4;
constexpr int64_t kTokens = kFrames * 192;
constexpr int64_t kHeadDim = 128;

struct Inputs {
  Inputs() : data(static_cast<size_t>(3 * kTokens * kHeadDim)) {
    uint32_t state = 1;
    for (float& value : data) {
      state = state * 1664525U + 1013904223U;
      value = static_cast<float>(state >> 8) / 16777216.F - 0.5F;
    }
    float* next = data.data();
    for (fovea::TensorView* view : {&tensors.q, &tensors.k, &tensors.v}) {
      *view = fovea::make_view(next, fovea::kF32, {1, kTokens, 1, kHeadDim});
      next += kTokens * kHeadDim;
    }
  }
  std::vector<float> data;
  fovea::AttentionTensors tensors;
};

void print(const char* title, const fovea::Result<fovea::AttentionResult>& result) {
  if (!result) {
    std::printf("%s\n  refused: %s\n", title, result.error().message.c_str());
    return;
  }
  const fovea::Receipt& receipt = *result->receipt;
  std::printf("%s\n  ran: %s, %s %s", title, name(receipt.backend).c_str(), receipt.path.c_str(),
              receipt.instance.c_str());
  if (receipt.density) std::printf(", density %.4f", *receipt.density);
  if (receipt.scheduled_dense) std::printf(", dense by schedule");
  if (receipt.fallback) std::printf(", instead of %s", name(receipt.fallback->from).c_str());
  std::printf("\n");
}

fovea::Result<fovea::AttentionResult> call(const AttentionConfig& config,
                                           const fovea::SparseAttentionState* state = nullptr) {
  const Inputs inputs;
  FOVEA_TRY(const fovea::Attention layer, fovea::Attention::create({}, config));
  fovea::CallOptions options;
  options.sparse_state = state;
  return layer(inputs.tensors, options);
}

fovea::Status radial() {
  fovea::SparseAttentionConfig sparse;
  sparse.sparse_impl = "radial";
  sparse.dense_timesteps = 40;
  sparse.dense_layers = 2;
  sparse.decay_factor = 1.0;
  sparse.block_size = 64;
  FOVEA_TRY(const AttentionConfig config, AttentionConfig::radial_attention(sparse));
  FOVEA_TRY(fovea::MaskMap map, fovea::MaskMap::create(kTokens, kFrames));
  FOVEA_TRY(auto state, fovea::SparseAttentionState::create(sparse, std::move(map)));
  print("2. radial, without a state", call(config));
  FOVEA_CHECK(state.update(39, 5));
  print("2. radial, step 39 of 50, layer 5", call(config, &state));
  FOVEA_CHECK(state.update(40, 5));
  print("2. radial, step 40 of 50, layer 5", call(config, &state));
  return {};
}

fovea::Status dense(const char* title, fovea::BackendName backend) {
  FOVEA_TRY(const AttentionConfig config, AttentionConfig::dense_attention(backend));
  print(title, call(config));
  return {};
}

}  // namespace

int main() {
  namespace backend = fovea::backend;
  for (const fovea::Status& status :
       {dense("1. dense FLASH_ATTN_2", backend::FLASH_ATTN_2), radial(),
        dense("3. quantised SAGE_ATTN_2_8_8_SM90", backend::SAGE_ATTN_2_8_8_SM90)}) {
    if (status) continue;
    std::fprintf(stderr, "error: %s\n", status.error().message.c_str());
    return 1;
  }
  return 0;
}
