// What a run checks before it writes: the tensors of the plan, the workspace, the values.
#include <algorithm>
#include <cstdlib>
#include <limits>

#include "src/simd/cpu_features.hpp"
#include "tests/contract/count_new.hpp"
#include "tests/contract/harness.hpp"

namespace fovea::contract {
namespace {

FOVEA_CONTRACT_SUITE(ContractRun);

struct Ready {
  Inputs in;
  Tensor out, lse;
  AttentionTensors tensors;
  std::unique_ptr<Plan> made;

  uint64_t hash() const { return out.hash() ^ lse.hash(); }
};

Ready ready(const Target& target) {
  Ready r;
  r.in = random_inputs(kF32, {.batch = 2, .seq_q = 6, .seq_kv = 9, .heads_q = 2, .heads_kv = 2});
  r.in.mask = Tensor(kBool, {2, 9}).fill(1.0);
  r.in.kv_lengths = Tensor(kI32, {2}).fill({9, 4});
  CallOptions options;
  options.return_lse = true;
  r.tensors = r.in.tensors();
  auto problem = describe(r.tensors, options);
  EXPECT_TRUE(problem.has_value());
  r.made = plan(target, *problem);
  r.out = Tensor(kF32, {2, 6, 2, 8});
  r.lse = Tensor(kF32, {2, 2, 6});
  r.tensors.out = r.out.view();
  r.tensors.lse = r.lse.view();
  return r;
}

// A problem of a type that the target takes.
Problem plain(const std::string& rest) {
  return *parse_problem(std::string(name(ContractRun::GetParam().dtype)) + " b1 h1 " + rest);
}

TEST_P(ContractRun, OtherTensorsThanPlannedAreRefused) {
  if (!GetParam().host_tensors) GTEST_SKIP() << "the launcher copies tensors";
  Ready r = ready(GetParam());
  if (!r.made) return;
  ASSERT_TRUE(GetParam().launcher->launch(*r.made, r.tensors).has_value());
  struct Fault {
    const char* name;
    std::function<void(AttentionTensors&)> apply;
  };
  const Tensor wide(kF32, {2, 6, 4, 8});
  const Tensor half(kF16, {2, 6, 2, 8});
  const Fault faults[] = {
      {"q", [](AttentionTensors& t) { t.q.shape[1] = 5; }},
      {"q", [&](AttentionTensors& t) { t.q = half.view(); }},
      {"q", [](AttentionTensors& t) { t.q.stride[1] += 1; }},
      {"q", [](AttentionTensors& t) { t.q.data = nullptr; }},
      {"q", [](AttentionTensors& t) { t.q = {}; }},
      {"k", [](AttentionTensors& t) { t.k.shape[3] = 7; }},
      {"k", [](AttentionTensors& t) { t.k.rank = 3; }},
      {"v", [](AttentionTensors& t) { t.v.shape[0] = 1; }},
      {"v", [](AttentionTensors& t) { t.v.device.type = DeviceType::rocm; }},
      {"mask", [](AttentionTensors& t) { t.mask = {}; }},
      {"mask", [](AttentionTensors& t) { t.mask.shape[0] = 1; }},
      {"mask", [](AttentionTensors& t) { t.mask.dtype = kI32; }},
      {"kv_lengths", [](AttentionTensors& t) { t.kv_lengths = {}; }},
      {"kv_lengths", [](AttentionTensors& t) { t.kv_lengths.shape[0] = 3; }},
      {"cu_seqlens_q", [](AttentionTensors& t) { t.cu_seqlens_q = t.kv_lengths; }},
      {"out", [](AttentionTensors& t) { t.out = {}; }},
      {"out", [](AttentionTensors& t) { t.out.dtype = kBF16; }},
      {"out", [](AttentionTensors& t) { t.out.shape[2] = 1; }},
      {"out",
       [&](AttentionTensors& t) {
         t.out.data = wide.view().data;
         t.out.stride = {192, 32, 16, 1};
       }},
      {"lse", [](AttentionTensors& t) { t.lse = {}; }},
      {"lse",
       [](AttentionTensors& t) {
         t.lse.shape = {2, 6, 2};
       }},
      {"lse", [](AttentionTensors& t) { t.lse.data = t.out.data; }},
  };
  int number = 0;
  for (const Fault& fault : faults) {
    SCOPED_TRACE("fault " + std::to_string(number++));
    AttentionTensors bad = r.tensors;
    fault.apply(bad);
    const uint64_t before = r.hash();
    const Status status = GetParam().launcher->launch(*r.made, bad);
    ASSERT_FALSE(status.has_value());
    EXPECT_EQ(status.error().code, ErrorCode::invalid_tensor);
    EXPECT_EQ(status.error().message.rfind(fault.name, 0), 0u) << status.error().message;
    EXPECT_EQ(r.hash(), before) << "outputs stay untouched";
  }
}

TEST_P(ContractRun, LengthsOutsideTheirRangeAreRefused) {
  if (!GetParam().host_tensors) GTEST_SKIP() << "the launcher copies tensors";
  for (double bad : {-1.0, 10.0, 2147483647.0}) {
    Ready r = ready(GetParam());
    if (!r.made) return;
    r.in.kv_lengths.set(bad, 1);
    const uint64_t before = r.hash();
    const Status status = GetParam().launcher->launch(*r.made, r.tensors);
    ASSERT_FALSE(status.has_value());
    EXPECT_EQ(status.error().code, ErrorCode::invalid_value);
    EXPECT_NE(status.error().message.find("kv_lengths"), std::string::npos);
    EXPECT_EQ(r.hash(), before) << "outputs stay untouched";
  }
}

TEST_P(ContractRun, WorkspaceMustBeLargeEnoughAndAligned) {
  if (!GetParam().host_tensors) GTEST_SKIP() << "the launcher copies tensors";
  Ready r = ready(GetParam());
  if (!r.made || r.made->workspace_bytes() == 0) return;
  const size_t bytes = r.made->workspace_bytes();
  std::vector<char> memory(bytes + 2 * Plan::kWorkspaceAlignment);
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  char* aligned = memory.data() + (Plan::kWorkspaceAlignment - address % Plan::kWorkspaceAlignment);
  const uint64_t before = r.hash();
  for (const Workspace& bad : {Workspace{}, Workspace{nullptr, bytes},
                               Workspace{aligned, bytes - 1}, Workspace{aligned + 8, bytes}}) {
    const Status status = r.made->run(r.tensors, bad, {});
    ASSERT_FALSE(status.has_value());
    EXPECT_EQ(status.error().code, bad.data == aligned + 8 ? ErrorCode::invalid_argument
                                                           : ErrorCode::workspace_too_small);
    EXPECT_EQ(r.hash(), before);
  }
  EXPECT_TRUE(r.made->run(r.tensors, {aligned, bytes}, {}).has_value());
}

TEST_P(ContractRun, PlanRunsAgainAndOnOtherPointers) {
  Ready r = ready(GetParam());
  if (!r.made) return;
  ASSERT_TRUE(GetParam().launcher->launch(*r.made, r.tensors).has_value());
  const uint64_t first = r.hash();
  const Tensor out(kF32, {2, 6, 2, 8});
  const Tensor lse(kF32, {2, 2, 6});
  AttentionTensors other = r.tensors;
  other.out = out.view();
  other.lse = lse.view();
  ASSERT_TRUE(GetParam().launcher->launch(*r.made, other).has_value());
  EXPECT_EQ(out.hash() ^ lse.hash(), first);
}

TEST_P(ContractRun, AllocationsAreCounted) {
  // The launcher's "a run allocates nothing" is only worth something when the counter counts.
  if (!kCountsNew) GTEST_SKIP() << "ThreadSanitizer has its own operator new";
  const int64_t before = allocations();
  const auto memory = std::make_unique<int>(1);
  EXPECT_GT(allocations(), before);
}

TEST_P(ContractRun, WorkIsSplitOverTheExecutorWithoutATrace) {
  if (GetParam().executor->workers() < 2) GTEST_SKIP() << "one worker";
  Target serial = GetParam();
  serial.context.executor = &serial_executor();
  // Many pieces, and few rows against many keys, which may be divided.
  for (const auto& [batch, seq_q, seq_kv] : {std::array{2, 90, 130}, std::array{1, 40, 1500}}) {
    for (const DType dtype : {kF32, kBF16}) {
      const Inputs in = random_inputs(
          dtype, {.batch = batch, .seq_q = seq_q, .seq_kv = seq_kv, .heads_q = 2, .heads_kv = 2});
      const Answer one = attend(serial, in);
      const Answer many = attend(GetParam(), in);
      if (one.ran && one.receipt.deterministic) expect_same_bits(one, many);
    }
  }
}

TEST_P(ContractRun, MisfitsAreErrorsInEveryBuild) {
  // Sizes that no kernel was built for are an answer or a refusal, never an assertion.
  for (int64_t dim : {0, -3, 513, 4096}) {
    Problem p;
    p.head_dim = dim;
    p.dim_v = dim;
    fill_strides(p);
    if (dim < 1) {
      EXPECT_FALSE(validate(p).has_value());
      continue;
    }
    const auto report =
        GetParam().backend->resolve(GetParam().name, p, GetParam().spec(), GetParam().context);
    auto made = GetParam().backend->plan(GetParam().name, p, GetParam().spec(), GetParam().context);
    EXPECT_EQ(report.support, SupportStatus::unsupported);
    ASSERT_FALSE(made.has_value());
    EXPECT_EQ(made.error().reasons, report.reasons);
    EXPECT_NE(made.error().message.find("head_dim " + std::to_string(dim)), std::string::npos)
        << made.error().message;
  }
}

TEST_P(ContractRun, SparsePatternsRunOrAreRefusedByName) {
  for (const char* pattern : {"radial(decay=1,frames=4)", "radial:authors(decay=1,frames=4)"}) {
    const Problem p = plain("s512 d16 sparse=" + std::string(pattern));
    const auto report =
        GetParam().backend->resolve(GetParam().name, p, GetParam().spec(), GetParam().context);
    if (report.support != SupportStatus::unsupported) continue;
    ASSERT_EQ(report.reasons.size(), 1u);
    EXPECT_EQ(report.reasons[0].code, ReasonCode::sparse);
    EXPECT_EQ(report.reasons[0].got, p.sparse->name);
    EXPECT_FALSE(GetParam()
                     .backend->plan(GetParam().name, p, GetParam().spec(), GetParam().context)
                     .has_value());
  }
}

TEST_P(ContractRun, FactsOfAnotherMachineGiveReportsButNoPlans) {
  Target away = GetParam();
  away.context.local = false;
  const Problem p = plain("s4 d8");
  const auto report = away.backend->resolve(away.name, p, away.spec(), away.context);
  EXPECT_NE(report.support, SupportStatus::unsupported);
  EXPECT_FALSE(away.backend->plan(away.name, p, away.spec(), away.context).has_value());
}

TEST_P(ContractRun, ProviderOfTheSpecIsRespected) {
  AttentionSpec spec;
  spec.backend = GetParam().name;
  const Problem p = plain("s4 d8");
  for (const char* provider : {"", "fovea", "cudnn", "package"}) {
    spec.provider = provider;
    const auto report = GetParam().backend->resolve(GetParam().name, p, &spec, GetParam().context);
    const bool accepted = spec.provider.empty() || report.provider == spec.provider;
    EXPECT_EQ(report.support != SupportStatus::unsupported, accepted) << provider;
    EXPECT_EQ(GetParam().backend->plan(GetParam().name, p, &spec, GetParam().context).has_value(),
              accepted)
        << provider;
  }
}

// Each level of this machine is forced in turn, and the receipt says that it is what runs.
TEST(ContractTargets, HaveEveryInstructionSetOfThisMachine) {
  const std::vector<Target> all = targets();
  for (const simd::Isa isa : simd::kIsas) {
    if (!simd::includes(simd::probe_isa(), isa)) continue;
    const std::string isa_name(simd::name(isa));
    const auto found = std::find_if(all.begin(), all.end(), [&](const Target& target) {
      return target.label == "cpu_flash_" + isa_name;
    });
    ASSERT_NE(found, all.end()) << isa_name;
    const std::string dtype = isa == simd::Isa::amx ? "bf16" : "f32";
    const auto made = plan(*found, *parse_problem(dtype + " b1 h1 s8 d8"));
    ASSERT_NE(made, nullptr) << isa_name;
    EXPECT_EQ(made->receipt().isa, isa_name);
  }
}

}  // namespace
}  // namespace fovea::contract
