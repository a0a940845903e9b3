// A package whose kernel is replaced by the oracle; everything before the kernel is the real thing.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fovea/fovea.hpp"
#include "src/backends/reference/backend.hpp"

namespace fovea::test {

// What the kernel was handed.
struct SeenCall {
  std::string path;
  std::string q, k, mask;                // shapes, "" when absent
  std::array<int64_t, 4> mask_stride{};  // of a mask with four axes
  std::vector<int32_t> starts_q, starts_kv;
  bool kv_lengths = false;
  int64_t valid_queries = 0;
  int64_t protected_kv_prefix = 0;
  std::optional<double> laser_input_scale;
  std::optional<AttentionSpec> spec;
  std::optional<SkipDecision> skip;
  std::optional<VideoLayout> video_layout;
};

class VendorDouble {
 public:
  // `record`: of a validation run, or none. `validator`: whether the package publishes
  // a rule for head sizes (multiples of 8 up to 256, values up to queries).
  explicit VendorDouble(std::string package, std::shared_ptr<const ValidationFile> record = {},
                        bool validator = true)
      : package_(std::move(package)) {
    PackageKernel kernel;
    kernel.package = package_;
    kernel.validation = std::move(record);
    kernel.run = [this](const PackageCall& call) { return run(call); };
    if (validator)
      kernel.validate_dims = [this](int64_t head_dim, int64_t dim_v, int64_t alignment) {
        return validate(head_dim, dim_v, alignment);
      };
    const Status bound = bind_package(std::move(kernel));
    EXPECT_TRUE(bound.has_value());
  }
  ~VendorDouble() { unbind_package(package_); }
  VendorDouble(const VendorDouble&) = delete;
  VendorDouble& operator=(const VendorDouble&) = delete;

  const std::vector<SeenCall>& calls() const { return calls_; }
  const SeenCall& last() const { return calls_.back(); }
  int validations() const { return validations_; }

 private:
  std::optional<std::string> validate(int64_t head_dim, int64_t dim_v, int64_t alignment) {
    ++validations_;
    if (head_dim % alignment != 0 || dim_v % alignment != 0)
      return "head sizes that are multiples of " + std::to_string(alignment);
    if (head_dim > 256 || dim_v > 256) return std::string("head sizes up to 256");
    return std::nullopt;
  }

  static std::string shape(const TensorView& view) {
    return view.present() ? to_string(view) : std::string();
  }
  static std::vector<int32_t> values(const TensorView& view) {
    if (!view.present()) return {};
    const auto* data = static_cast<const int32_t*>(view.data);
    return {data, data + view.shape[0]};
  }

  Status run(const PackageCall& call) {
    AttentionTensors t = call.tensors;
    SeenCall seen{std::string(call.path),
                  shape(t.q),
                  shape(t.k),
                  shape(t.mask),
                  {},
                  values(t.cu_seqlens_q),
                  values(t.cu_seqlens_kv),
                  t.kv_lengths.present(),
                  call.valid_queries,
                  call.protected_kv_prefix,
                  call.laser_input_scale,
                  call.spec == nullptr ? std::nullopt : std::optional(*call.spec),
                  call.skip == nullptr ? std::nullopt : std::optional(*call.skip),
                  call.video_layout == nullptr ? std::nullopt : std::optional(*call.video_layout)};
    if (t.mask.rank == 4) std::copy_n(t.mask.stride.begin(), 4, seen.mask_stride.begin());
    calls_.push_back(seen);
    // Rows of padding see nothing.
    const auto tokens = static_cast<int32_t>(call.valid_queries);
    const auto keys = static_cast<int32_t>(t.k.shape[0]);
    int32_t starts_q[] = {0, tokens, static_cast<int32_t>(t.q.shape[0])};
    int32_t starts_kv[] = {0, keys, keys};
    if (t.q.rank == 3 && call.valid_queries < t.q.shape[0]) {
      t.cu_seqlens_q = make_view(starts_q, kI32, {3});
      t.cu_seqlens_kv = make_view(starts_kv, kI32, {3});
    }
    CallOptions options;
    options.input_layout = call.problem.layout;
    options.output_layout = call.problem.out_layout;
    options.scale = call.problem.effective_scale();
    options.is_causal = call.problem.causal;
    options.window = call.problem.window;
    FOVEA_TRY(const Problem problem, describe(t, options));
    FOVEA_TRY(const std::unique_ptr<Plan> plan,
              backends::make_reference_backend()->plan(backend::REFERENCE, problem, nullptr, {}));
    constexpr size_t kAlignment = Plan::kWorkspaceAlignment;
    const size_t bytes = (plan->workspace_bytes() + kAlignment) / kAlignment * kAlignment;
    const std::unique_ptr<void, void (*)(void*)> memory(std::aligned_alloc(kAlignment, bytes),
                                                        std::free);
    return plan->run(t, {memory.get(), bytes}, call.stream);
  }

  std::string package_;
  std::vector<SeenCall> calls_;
  int validations_ = 0;
};

// Tensors of one call in host memory, N(0,1)-like values from a fixed rule, and the answer of a
// layer.
class VendorCall {
 public:
  VendorCall(std::string_view problem, uint64_t seed = 1) {
    auto parsed = parse_problem(problem);
    EXPECT_TRUE(parsed.has_value()) << (parsed ? "" : parsed.error().message);
    if (!parsed) return;
    const Problem& p = *parsed;
    state_ = seed;
    const bool packed = p.layout == Layout::packed;
    options.input_layout = p.layout;
    options.is_causal = p.causal;
    if (packed) {
      tensors.q = make({p.seq_q, p.heads_q, p.head_dim}, p.dtype);
      tensors.k = make({p.seq_kv, p.heads_kv, p.head_dim}, p.dtype);
      tensors.v = make({p.seq_kv, p.heads_kv, p.dim_v}, p.dtype);
      starts_[0].push_back(0);
      starts_[1].push_back(0);
      for (const Document& d : p.document_values) {
        starts_[0].push_back(starts_[0].back() + static_cast<int32_t>(d.seq_q));
        starts_[1].push_back(starts_[1].back() + static_cast<int32_t>(d.seq_kv));
      }
      const auto count = static_cast<int64_t>(starts_[0].size());
      tensors.cu_seqlens_q = make_view(starts_[0].data(), kI32, {count});
      tensors.cu_seqlens_kv = make_view(starts_[1].data(), kI32, {count});
    } else {
      tensors.q = make({p.batch, p.seq_q, p.heads_q, p.head_dim}, p.dtype);
      tensors.k = make({p.batch, p.seq_kv, p.heads_kv, p.head_dim}, p.dtype);
      tensors.v = make({p.batch, p.seq_kv, p.heads_kv, p.dim_v}, p.dtype);
    }
  }

  // A boolean mask by rule.
  template <class Rule>
  void set_mask(std::vector<int64_t> shape, Rule rule) {
    int64_t count = 1;
    for (int64_t size : shape) count *= size;
    mask_.resize(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i)
      mask_[static_cast<size_t>(i)] = rule(i / shape.back(), i % shape.back()) ? 1 : 0;
    tensors.mask = make_view(mask_.data(), kBool, shape);
  }

  Result<AttentionResult> run(const Attention& layer) {
    options.metadata = &metadata;
    return layer(tensors, options);
  }
  // The answer of the same tensors on the CPU.
  Result<AttentionResult> expected() {
    AttentionConfig config;
    config.default_spec.emplace().backend = backend::REFERENCE;
    FOVEA_TRY(const Attention layer, Attention::create({}, config, &serial_executor()));
    return run(layer);
  }
  Problem problem() const {
    auto described = describe(tensors, options);
    EXPECT_TRUE(described.has_value()) << (described ? "" : described.error().message);
    return described.value_or(Problem());
  }

  AttentionTensors tensors;
  CallOptions options;
  AttentionMetadata metadata;

 private:
  TensorView make(std::vector<int64_t> shape, DType dtype) {
    int64_t count = 1;
    for (int64_t size : shape) count *= size;
    auto& memory = memory_.emplace_back(static_cast<size_t>(count) * size_bytes(dtype));
    for (int64_t i = 0; i < count; ++i) {
      state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
      const float value =
          static_cast<float>(static_cast<int64_t>(state_ >> 40) - (1 << 23)) * 0x1p-22f;
      store(memory.data(), dtype, i, value);
    }
    return make_view(memory.data(), dtype, shape);
  }
  static void store(unsigned char* memory, DType dtype, int64_t i, float value) {
    if (dtype == kF32) {
      std::memcpy(memory + 4 * i, &value, 4);
      return;
    }
    // bf16 by truncation; any value will do.
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    const auto high = static_cast<uint16_t>(bits >> 16);
    std::memcpy(memory + 2 * i, &high, 2);
  }

  std::vector<std::vector<unsigned char>> memory_;
  std::vector<uint8_t> mask_;
  std::vector<int32_t> starts_[2];
  uint64_t state_ = 1;
};

inline Attention vendor_layer(PlatformId platform, std::string_view facts,
                              AttentionConfig config = {}) {
  auto parsed = parse_facts(platform, facts);
  EXPECT_TRUE(parsed.has_value()) << (parsed ? "" : parsed.error().message);
  if (!config.default_spec) config.default_spec.emplace().backend = backend::FLASH_ATTN;
  auto layer = Attention::create({}, config, &serial_executor(), *parsed);
  EXPECT_TRUE(layer.has_value());
  return *std::move(layer);
}

}  // namespace fovea::test
