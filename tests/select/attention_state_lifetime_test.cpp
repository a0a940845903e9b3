// Who owns prepared tensors, and until when. The backend that reads them exists in this test only:
// attention whose queries are scaled head by head.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <thread>

#include "src/backends/reference/backend.hpp"
#include "tests/contract/count_new.hpp"
#include "tests/select/vendor_double.hpp"

namespace fovea {
namespace {

using test::VendorCall;

constexpr int64_t kHeads = 2;

class ScaledPlan final : public Plan {
 public:
  ScaledPlan(std::unique_ptr<Plan> inner, Receipt receipt)
      : inner_(std::move(inner)), receipt_(std::move(receipt)) {}
  size_t workspace_bytes() const noexcept override { return receipt_.workspace_bytes; }
  const Receipt& receipt() const noexcept override { return receipt_; }

  // Workspace: the inner plan's, then the scaled queries.
  Status run(const AttentionTensors& tensors, Workspace workspace,
             Stream stream) const noexcept override {
    const TensorView* scale =
        tensors.prepared == nullptr ? nullptr : tensors.prepared->find("q_scale");
    if (scale == nullptr) return Error{ErrorCode::invalid_tensor, "q_scale is missing", {}};
    const size_t inner_bytes = inner_->workspace_bytes();
    auto* const scaled = reinterpret_cast<float*>(static_cast<char*>(workspace.data) + inner_bytes);
    const auto* const from = static_cast<const float*>(tensors.q.data);
    const int64_t dim = tensors.q.shape[3];
    for (int64_t i = 0; i < tensors.q.numel(); ++i)
      scaled[i] = from[i] * static_cast<const float*>(scale->data)[i / dim % kHeads];
    AttentionTensors t = tensors;
    t.q.data = scaled;
    t.prepared = nullptr;
    return inner_->run(t, {workspace.data, inner_bytes}, stream);
  }

 private:
  std::unique_ptr<Plan> inner_;
  Receipt receipt_;
};

class ScaledBackend final : public Backend {
 public:
  std::string_view path() const noexcept override { return "test:scaled"; }

  ExecutionPathResult resolve(BackendName backend, const Problem& problem,
                              const AttentionSpec* spec,
                              const ExecutionContext& context) const override {
    ExecutionContext plain = context;
    plain.prepared.clear();
    ExecutionPathResult r = inner_->resolve(backend, problem, spec, plain);
    r.path = "test.scaled";
    r.workspace_bytes += static_cast<size_t>(problem.seq_q * kHeads * problem.head_dim) * 4;
    if (context.prepared != "q_scale:f32[2]@cpu") {
      r.support = SupportStatus::unsupported;
      r.reasons = {{ReasonCode::prepared, "prepared tensors", context.prepared,
                    "q_scale:f32[2]@cpu", "pass them"}};
    }
    return r;
  }

  Result<std::unique_ptr<Plan>> plan(BackendName backend, const Problem& problem,
                                     const AttentionSpec* spec,
                                     const ExecutionContext& context) const override {
    ++plans;
    const ExecutionPathResult r = resolve(backend, problem, spec, context);
    if (r.support == SupportStatus::unsupported)
      return Error{ErrorCode::unsupported, sentence(r.reasons), r.reasons};
    ExecutionContext plain = context;
    plain.prepared.clear();
    FOVEA_TRY(std::unique_ptr<Plan> inner, inner_->plan(backend, problem, spec, plain));
    Receipt receipt = inner->receipt();
    receipt.path = r.path;
    receipt.workspace_bytes = r.workspace_bytes;
    return std::unique_ptr<Plan>(new ScaledPlan(std::move(inner), std::move(receipt)));
  }

  mutable std::atomic<int> plans{0};

 private:
  std::shared_ptr<const Backend> inner_ = backends::make_reference_backend();
};

// The scaled backend behind a name, for the life of a test.
class Scaled {
 public:
  Scaled() { EXPECT_TRUE(register_backend(backend::TORCH_SDPA, object_).has_value()); }
  ~Scaled() { clear_override(backend::TORCH_SDPA); }
  int plans() const { return object_->plans; }

 private:
  std::shared_ptr<ScaledBackend> object_ = std::make_shared<ScaledBackend>();
};

// q_scale [2], of which the test sees when the memory goes.
std::shared_ptr<const PreparedTensors> scales(float first, float second,
                                              std::shared_ptr<bool> freed = nullptr) {
  auto* memory = new float[2]{first, second};
  const std::shared_ptr<void> owner(memory, [freed](void* p) {
    delete[] static_cast<float*>(p);
    if (freed) *freed = true;
  });
  auto made = PreparedTensors::create(
      {{"q_scale", OwnedTensor::adopt(make_view(memory, kF32, {2}), owner)}});
  EXPECT_TRUE(made.has_value()) << (made ? "" : made.error().message);
  return made.value_or(nullptr);
}

Attention scaled_layer(std::shared_ptr<const PreparedTensors> prepared) {
  LayerOptions options;
  options.prepared = std::move(prepared);
  AttentionConfig config;
  config.default_spec.emplace().backend = backend::TORCH_SDPA;
  auto layer = Attention::create(options, config);
  EXPECT_TRUE(layer.has_value());
  return *std::move(layer);
}

// What attention gives for queries scaled by hand.
std::vector<float> by_hand(const VendorCall& call, float first, float second) {
  const auto* q = static_cast<const float*>(call.tensors.q.data);
  std::vector<float> scaled(q, q + call.tensors.q.numel());
  const int64_t dim = call.tensors.q.shape[3];
  for (size_t i = 0; i < scaled.size(); ++i)
    scaled[i] *= static_cast<int64_t>(i) / dim % kHeads == 0 ? first : second;
  AttentionTensors t = call.tensors;
  t.q.data = scaled.data();
  AttentionConfig config;
  config.default_spec.emplace().backend = backend::REFERENCE;
  const auto layer = Attention::create({}, config, &serial_executor());
  const auto got = (*layer)(t);
  EXPECT_TRUE(got.has_value());
  const auto* out = static_cast<const float*>(got->out.view().data);
  return {out, out + got->out.view().numel()};
}

std::vector<float> run(const RecordedCall& recorded, const VendorCall& call) {
  std::vector<float> out(static_cast<size_t>(call.tensors.q.numel()), NAN);
  AttentionTensors t = call.tensors;
  t.out = make_view(out.data(), kF32, {t.q.shape[0], t.q.shape[1], t.q.shape[2], t.q.shape[3]});
  const Status status = recorded.run(t);
  EXPECT_TRUE(status.has_value()) << status.error().message;
  return out;
}

constexpr const char* kProblem = "f32 b1 h2 s6 d8";

TEST(StateLifetime, a_layer_passes_its_tensors_with_every_call) {
  const Scaled backend;
  const Attention layer = scaled_layer(scales(0.5f, 3.0f));
  VendorCall call(kProblem);
  const auto got = layer(call.tensors);
  ASSERT_TRUE(got.has_value()) << got.error().message;
  EXPECT_EQ(got->receipt->path, "test.scaled");
  const std::vector<float> expected = by_hand(call, 0.5f, 3.0f);
  EXPECT_EQ(0, std::memcmp(got->out.view().data, expected.data(), expected.size() * 4));
}

TEST(StateLifetime, a_recording_outlives_the_layer_and_the_callers_reference) {
  const Scaled backend;
  const auto freed = std::make_shared<bool>(false);
  std::weak_ptr<const PreparedTensors> watch;
  std::optional<RecordedCall> recorded;
  VendorCall call(kProblem);
  {
    auto prepared = scales(2.0f, 0.25f, freed);
    watch = prepared;
    const Attention layer = scaled_layer(prepared);
    prepared.reset();
    auto made = layer.record(call.problem());
    ASSERT_TRUE(made.has_value()) << made.error().message;
    recorded = std::move(*made);
  }
  EXPECT_FALSE(watch.expired());
  EXPECT_FALSE(*freed);
  const std::vector<float> expected = by_hand(call, 2.0f, 0.25f);
  for (int replay = 0; replay < 3; ++replay) EXPECT_EQ(run(*recorded, call), expected);
  recorded.reset();
  EXPECT_TRUE(watch.expired()) << "released with the recording";
  EXPECT_TRUE(*freed);
}

TEST(StateLifetime, equal_instances_share_one_executable_with_their_own_values) {
  const Scaled backend;
  VendorCall call(kProblem);
  const auto freed = std::make_shared<bool>(false);
  std::optional<RecordedCall> first;
  {
    const Attention layer = scaled_layer(scales(1.0f, 2.0f, freed));
    auto made = layer.record(call.problem());
    ASSERT_TRUE(made.has_value()) << made.error().message;
    first = std::move(*made);
    // The layer's own plan is the same one.
    auto again = layer.record(call.problem());
    ASSERT_TRUE(again.has_value());
    EXPECT_EQ(again->plan(), first->plan());
  }
  auto second = first->rebind(scales(-1.0f, 0.5f));
  ASSERT_TRUE(second.has_value()) << second.error().message;
  EXPECT_EQ(second->plan(), first->plan());
  EXPECT_EQ(backend.plans(), 1);
  EXPECT_EQ(run(*first, call), by_hand(call, 1.0f, 2.0f));
  EXPECT_EQ(run(*second, call), by_hand(call, -1.0f, 0.5f));
  EXPECT_EQ(run(*first, call), by_hand(call, 1.0f, 2.0f));
  // Each lets go of its own tensors only.
  first.reset();
  EXPECT_TRUE(*freed);
  EXPECT_EQ(run(*second, call), by_hand(call, -1.0f, 0.5f));
}

TEST(StateLifetime, BugRow48_one_recording_serves_other_inputs) {
  const Scaled backend;
  const Attention layer = scaled_layer(scales(1.5f, -2.0f));
  VendorCall a(kProblem, 1), b(kProblem, 2);
  const auto recorded = layer.record(a.problem());
  ASSERT_TRUE(recorded.has_value());
  EXPECT_EQ(run(*recorded, a), by_hand(a, 1.5f, -2.0f));
  EXPECT_EQ(run(*recorded, b), by_hand(b, 1.5f, -2.0f));
  VendorCall longer("f32 b1 h2 s7 d8");
  AttentionTensors t = longer.tensors;
  std::vector<float> out(7 * 16);
  t.out = make_view(out.data(), kF32, {1, 7, 2, 8});
  EXPECT_FALSE(recorded->run(t).has_value()) << "another problem than the recorded one";
}

TEST(StateLifetime, tensors_of_another_signature_are_refused) {
  const Scaled backend;
  const Attention layer = scaled_layer(scales(1.0f, 1.0f));
  VendorCall call(kProblem);
  const auto recorded = layer.record(call.problem());
  ASSERT_TRUE(recorded.has_value());
  const int64_t shape[] = {3};
  auto other = PreparedTensors::create({{"q_scale", *OwnedTensor::allocate(kF32, shape)}});
  ASSERT_TRUE(other.has_value());
  const auto refused = recorded->rebind(*other);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message,
            "rebind: the prepared tensors are q_scale:f32[3]@cpu, recorded with "
            "q_scale:f32[2]@cpu; record a call for them");
  EXPECT_FALSE(recorded->rebind(nullptr).has_value());
  // A layer with the wrong ones is refused by the backend, by name.
  const Attention wrong = scaled_layer(*other);
  const auto error = wrong.record(call.problem());
  ASSERT_FALSE(error.has_value());
  EXPECT_NE(error.error().message.find("q_scale:f32[3]@cpu"), std::string::npos);
}

TEST(StateLifetime, backends_that_read_no_prepared_tensors_refuse_them) {
  LayerOptions options;
  options.prepared = scales(1.0f, 1.0f);
  for (BackendName name : {backend::FLASH_ATTN, backend::REFERENCE}) {
    AttentionConfig config;
    config.default_spec.emplace().backend = name;
    const auto layer = Attention::create(options, config, &serial_executor());
    ASSERT_TRUE(layer.has_value());
    VendorCall call(kProblem);
    const auto got = (*layer)(call.tensors);
    ASSERT_FALSE(got.has_value());
    EXPECT_EQ(got.error().reasons[0].code, ReasonCode::prepared);
    // A plan made without them refuses them too.
    const auto plain = Attention::create({}, config, &serial_executor());
    const auto plan = plain->plan(call.problem());
    ASSERT_TRUE(plan.has_value());
    AttentionTensors t = call.tensors;
    t.prepared = options.prepared.get();
    const Status status = (*plan)->run(t, {}, {});
    ASSERT_FALSE(status.has_value());
    EXPECT_NE(status.error().message.find("prepared tensors"), std::string::npos);
  }
}

TEST(StateLifetime, a_run_allocates_nothing_and_moves_are_safe) {
  const Scaled backend;
  const Attention layer = scaled_layer(scales(0.5f, 4.0f));
  VendorCall call(kProblem);
  auto made = layer.record(call.problem());
  ASSERT_TRUE(made.has_value());
  RecordedCall moved = std::move(*made);
  std::vector<float> out(6 * 16);
  AttentionTensors t = call.tensors;
  t.out = make_view(out.data(), kF32, {1, 6, 2, 8});
  const int64_t before = contract::allocations();
  const Status status = moved.run(t);
  EXPECT_EQ(contract::allocations(), before);
  EXPECT_TRUE(status.has_value());
  EXPECT_EQ(out, by_hand(call, 0.5f, 4.0f));
}

TEST(StateLifetime, recordings_of_one_executable_run_side_by_side) {
  const Scaled backend;
  const Attention layer = scaled_layer(scales(1.0f, 1.0f));
  VendorCall call(kProblem);
  const auto recorded = layer.record(call.problem());
  ASSERT_TRUE(recorded.has_value());
  std::vector<std::vector<float>> expected;
  for (int t = 0; t < 4; ++t) expected.push_back(by_hand(call, static_cast<float>(t), 0.5f));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const auto own = recorded->rebind(scales(static_cast<float>(t), 0.5f));
      ASSERT_TRUE(own.has_value());
      for (int i = 0; i < 20; ++i) ASSERT_EQ(run(*own, call), expected[static_cast<size_t>(t)]);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(backend.plans(), 1);
}

TEST(StateLifetime, a_recording_without_tensors_runs_metadata_too) {
  const auto layer = Attention::create({}, {}, &serial_executor());
  VendorCall call("f32 b1 h2 s6 d8");
  AttentionMetadata metadata;
  metadata.packed_padding = PackedPadding{4, 5};
  const auto recorded = layer->record(call.problem(), metadata);
  ASSERT_TRUE(recorded.has_value()) << recorded.error().message;
  const std::vector<float> out = run(*recorded, call);
  call.metadata = metadata;
  const auto expected = call.run(*layer);
  ASSERT_TRUE(expected.has_value());
  EXPECT_EQ(0, std::memcmp(out.data(), expected->out.view().data, out.size() * 4));
}

TEST(StateLifetime, prepared_tensors_are_named_once_and_present) {
  const int64_t shape[] = {2};
  const OwnedTensor tensor = *OwnedTensor::allocate(kF32, shape);
  EXPECT_FALSE(PreparedTensors::create({}).has_value());
  EXPECT_FALSE(PreparedTensors::create({{"", tensor}}).has_value());
  EXPECT_FALSE(PreparedTensors::create({{"q scale", tensor}}).has_value());
  EXPECT_FALSE(PreparedTensors::create({{"a", tensor}, {"a", tensor}}).has_value());
  EXPECT_FALSE(PreparedTensors::create({{"a", OwnedTensor()}}).has_value());
  const auto set = PreparedTensors::create({{"b", tensor}, {"a", tensor}});
  ASSERT_TRUE(set.has_value());
  EXPECT_EQ((*set)->signature(), "a:f32[2]@cpu,b:f32[2]@cpu");
  EXPECT_EQ((*set)->find("c"), nullptr);
  EXPECT_NE((*set)->find("b"), nullptr);
}

}  // namespace
}  // namespace fovea
