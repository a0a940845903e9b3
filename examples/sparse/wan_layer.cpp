// Radial attention through the denoising run of a Wan-shaped model: 40 steps, the first 12 dense,
// the first layer dense. Prints what ran where and what it saved.
//   fovea_sparse_wan_layer [FRAMES TOKENS_PER_FRAME HEADS LAYERS]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "fovea/fovea.hpp"
#include "fovea/sparse.hpp"

namespace {

constexpr int64_t kSteps = 40;
constexpr int64_t kDenseSteps = 12;
constexpr int64_t kDenseLayers = 1;
constexpr int64_t kHeadDim = 128;

struct Sizes {
  int64_t frames = 9;
  int64_t tokens = 128;  // of a frame; Wan at 480 x 832 has 21 frames of 1560
  int64_t heads = 2;
  int64_t layers = 3;
};

// Queries, keys and values in bfloat16, from a fixed sequence of numbers.
std::vector<uint16_t> make_values(int64_t count) {
  std::vector<uint16_t> values(static_cast<size_t>(count));
  uint32_t state = 7;
  for (uint16_t& value : values) {
    state = state * 1664525U + 1013904223U;
    // Sign, an exponent around one, and a fraction.
    value = static_cast<uint16_t>((state & 0x80000000U) >> 16 | (0x3f00U + (state >> 9 & 0xffU)));
  }
  return values;
}

// Time and number of the calls that one backend ran.
struct Share {
  int64_t calls = 0;
  double milliseconds = 0;
  double density = 1;
};

fovea::Status run(const Sizes& sizes) {
  fovea::AttentionConfig config;
  fovea::AttentionSpec& spec = config.default_spec.emplace();
  spec.backend = fovea::backend::RADIAL_ATTN;
  spec.radial.emplace();
  spec.radial->dense_timesteps = kDenseSteps;
  spec.radial->dense_layers = kDenseLayers;
  spec.radial->decay_factor = 0.5;

  const int64_t tokens = sizes.frames * sizes.tokens;
  FOVEA_TRY(fovea::MaskMap map, fovea::MaskMap::create(tokens, sizes.frames));
  FOVEA_TRY(auto state, fovea::SparseAttentionState::create(spec, std::move(map), "wan"));
  FOVEA_CHECK(state.begin_run(kSteps, sizes.layers));
  fovea::LayerOptions options;
  options.role = "wan.self";
  FOVEA_TRY(const fovea::Attention layer, fovea::Attention::create(options, config));

  const int64_t elements = tokens * sizes.heads * kHeadDim;
  std::vector<uint16_t> values = make_values(3 * elements);
  fovea::AttentionTensors tensors;
  uint16_t* next = values.data();
  for (fovea::TensorView* view : {&tensors.q, &tensors.k, &tensors.v}) {
    *view = fovea::make_view(next, fovea::kBF16, {1, tokens, sizes.heads, kHeadDim});
    next += elements;
  }
  FOVEA_TRY(const fovea::OwnedTensor out,
            fovea::OwnedTensor::allocate(fovea::kBF16,
                                         std::vector<int64_t>{1, tokens, sizes.heads, kHeadDim}));
  tensors.out = out.view();

  fovea::CallOptions call;
  call.sparse_state = &state;
  std::map<std::string, Share> shares;
  for (int64_t step = 0; step < kSteps; ++step) {
    for (int64_t index = 0; index < sizes.layers; ++index) {
      FOVEA_CHECK(state.update(step, index));
      const auto start = std::chrono::steady_clock::now();
      FOVEA_TRY(const auto receipt, layer.run(tensors, call));
      const std::chrono::duration<double, std::milli> taken =
          std::chrono::steady_clock::now() - start;
      Share& share =
          shares[name(receipt->backend) + (receipt->scheduled_dense ? " (dense by schedule)" : "")];
      ++share.calls;
      share.milliseconds += taken.count();
      share.density = receipt->density.value_or(1);
    }
  }
  std::printf("%lld frames of %lld tokens, %lld heads of %lld, %lld steps, %lld layers\n",
              static_cast<long long>(sizes.frames), static_cast<long long>(sizes.tokens),
              static_cast<long long>(sizes.heads), static_cast<long long>(kHeadDim),
              static_cast<long long>(kSteps), static_cast<long long>(sizes.layers));
  for (const auto& [who, share] : shares) {
    std::printf("%-36s %5lld calls, density %.4f, %.3f ms a call\n", who.c_str(),
                static_cast<long long>(share.calls), share.density,
                share.milliseconds / static_cast<double>(share.calls));
  }
  return {};
}

}  // namespace

int main(int count, char** arguments) {
  Sizes sizes;
  int64_t* const targets[] = {&sizes.frames, &sizes.tokens, &sizes.heads, &sizes.layers};
  for (int n = 1; n < count && n <= 4; ++n) *targets[n - 1] = std::atoll(arguments[n]);
  if (const fovea::Status status = run(sizes); !status) {
    std::fprintf(stderr, "error: %s\n", status.error().message.c_str());
    return 1;
  }
  return 0;
}
