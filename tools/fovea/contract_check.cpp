#include "tools/fovea/contract_check.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "src/backends/reference/agreement.hpp"
#include "src/backends/reference/attend.hpp"
#include "src/core/element.hpp"
#include "src/core/random_inputs.hpp"
#include "src/core/text.hpp"
#include "src/core/tolerance.hpp"
#include "tools/fovea/layer_run.hpp"

namespace fovea::cli {

namespace {

namespace reference = backends::reference;

constexpr std::string_view kDense = "dense";
constexpr std::string_view kPadding = "key padding";
constexpr std::string_view kUnequal = "unequal lengths";
constexpr std::string_view kPacked = "packed";
constexpr std::string_view kReplay = "replay";

// Head sizes of queries and values that a kernel's validator is tried with.
constexpr std::pair<int64_t, int64_t> kHeads[] = {{32, 32},   {64, 64},   {80, 48},
                                                  {128, 128}, {192, 128}, {256, 256}};

constexpr std::pair<int64_t, int64_t> kReplayHeads[] = {{64, 64}, {128, 128}};

struct Wanted {
  std::string_view kind;
  std::string problem;
};

// bf16 with up to 1,024 tokens. Lengths are no multiples of a block, and lengths, masks and
// documents are those that a video or image model makes.
std::vector<Wanted> wanted_cases() {
  std::vector<Wanted> list;
  uint64_t seed = 1;
  const auto add = [&](std::string_view kind, std::pair<int64_t, int64_t> heads,
                       std::string_view rest, int64_t batch, int64_t seq_q) {
    std::string text = text::concat("bf16 b", batch, " h2 s", seq_q, " d", heads.first);
    if (heads.second != heads.first) text += text::concat(" dv=", heads.second);
    text += text::concat(rest.empty() ? "" : " ", rest, " lse=1 seed=", seed++);
    list.push_back({kind, std::move(text)});
  };
  for (const auto& heads : kHeads) {
    add(kDense, heads, "", 1, 1024);
    add(kDense, heads, "hk=1", 2, 333);
    add(kPadding, heads, "kvlen=1000,389", 2, 1000);
    add(kPadding, heads, "mask=keys", 2, 517);
    add(kUnequal, heads, "sk=512", 1, 777);
    add(kUnequal, heads, "sk=600 kvlen=600,77", 2, 129);
    add(kUnequal, heads, "sk=333 mask=keys", 2, 1024);
    add(kPacked, heads, "layout=packed docs=300:300,1:1,467:467,256:256", 1, 1024);
    add(kPacked, heads, "sk=700 layout=packed docs=200:77,400:500,100:123", 1, 700);
  }
  for (const int64_t length : {127, 640, 1024}) {
    for (const auto& heads : kReplayHeads) {
      add(kReplay, heads, "", 1, length);
      add(kReplay, heads, "kvlen=100,59", 2, length);
    }
  }
  return list;
}

// Rows of queries that are padding themselves: self-attention whose keys are padded. Platforms may
// define their outputs differently, so they are not compared.
int64_t valid_rows(const Problem& problem, int64_t item) {
  const bool self = problem.seq_q == problem.seq_kv && problem.layout != Layout::packed;
  if (!self || problem.kv_length_values.empty()) return problem.seq_q;
  return problem.kv_length_values[static_cast<size_t>(item)];
}

struct Figures {
  Comparison out;
  Comparison lse;
  double magnitude = 0;
  int64_t outside = 0;
  bool finite = true;
};

// Adds the rows of one oracle to the figures; `first_row` is where its queries start in the result.
class Judge {
 public:
  Judge(const Problem& problem, TensorView out, TensorView lse)
      : problem_(problem), out_(out), lse_(lse) {}

  void add(const Problem& part, const reference::Oracle& oracle, int64_t first_row) {
    reference::Row row;
    const int64_t items = part.layout == Layout::packed ? 1 : part.batch;
    for (row.batch = 0; row.batch < items; ++row.batch)
      for (row.head = 0; row.head < part.heads_q; ++row.head)
        for (row.index = 0; row.index < valid_rows(part, row.batch); ++row.index)
          add_row(part, oracle, row, first_row);
    magnitude_ = std::max(magnitude_, oracle.magnitude);
  }

  Figures result() const {
    return {out_sum_.result(), lse_sum_.result(), magnitude_, outside_, finite_};
  }

 private:
  void add_row(const Problem& part, const reference::Oracle& oracle, const reference::Row& row,
               int64_t first_row) {
    reference::Row here = row;
    here.index += first_row;
    const int64_t from = reference::out_offset(part, row);
    const int64_t at = reference::out_offset(problem_, here);
    for (int64_t d = 0; d < part.dim_v; ++d) {
      const double expected = oracle.out[static_cast<size_t>(from + d)];
      const double got = load_element(out_.data, out_.dtype, at + d);
      out_sum_.add(got, expected);
      finite_ = finite_ && std::isfinite(got);
      const double bound = kValidationBf16 + kValidationBf16 * std::abs(expected);
      if (!(std::abs(got - expected) <= bound)) ++outside_;
    }
    const double lse = load_element(lse_.data, kF32, reference::lse_offset(problem_, here));
    finite_ = finite_ && std::isfinite(lse);
    lse_sum_.add(lse, oracle.lse[static_cast<size_t>(reference::lse_offset(part, row))]);
  }

  const Problem& problem_;
  TensorView out_, lse_;
  Comparer out_sum_, lse_sum_;
  double magnitude_ = 0;
  int64_t outside_ = 0;
  bool finite_ = true;
};

// One document of a packed call as a call of its own.
std::pair<Problem, AttentionTensors> document_of(const Problem& problem,
                                                 const AttentionTensors& tensors, size_t index,
                                                 int64_t first_q, int64_t first_kv) {
  const Document& document = problem.document_values[index];
  Problem part;
  part.dtype = problem.dtype;
  part.out_dtype = problem.out_dtype;
  part.heads_q = problem.heads_q;
  part.heads_kv = problem.heads_kv;
  part.head_dim = problem.head_dim;
  part.dim_v = problem.dim_v;
  part.seq_q = document.seq_q;
  part.seq_kv = document.seq_kv;
  part.lse = true;
  fill_strides(part);
  AttentionTensors slice;
  const auto cut = [](const TensorView& view, int64_t first, int64_t length) {
    const int64_t shape[] = {1, length, view.shape[1], view.shape[2]};
    TensorView out = make_view(view.data, view.dtype, shape);
    out.data = static_cast<std::byte*>(view.data) + first * view.stride[0] * view.dtype.bits / 8;
    out.stride = {0, view.stride[0], view.stride[1], view.stride[2]};
    return out;
  };
  slice.q = cut(tensors.q, first_q, document.seq_q);
  slice.k = cut(tensors.k, first_kv, document.seq_kv);
  slice.v = cut(tensors.v, first_kv, document.seq_kv);
  return {part, slice};
}

// The result against float64; packed documents each against a reference of their own.
Result<Figures> judge(const Problem& problem, const AttentionTensors& inputs, TensorView out,
                      TensorView lse, Executor& executor) {
  Judge sums(problem, out, lse);
  if (problem.layout != Layout::packed) {
    FOVEA_TRY(const reference::Oracle oracle, reference::compute_oracle(problem, inputs, executor));
    sums.add(problem, oracle, 0);
    return sums.result();
  }
  int64_t first_q = 0, first_kv = 0;
  for (size_t i = 0; i < problem.document_values.size(); ++i) {
    const auto [part, slice] = document_of(problem, inputs, i, first_q, first_kv);
    FOVEA_TRY(const reference::Oracle oracle, reference::compute_oracle(part, slice, executor));
    sums.add(part, oracle, first_q);
    first_q += problem.document_values[i].seq_q;
    first_kv += problem.document_values[i].seq_kv;
  }
  return sums.result();
}

bool fits(const TensorView& got, const OutputSpec& wanted, Device device) {
  if (got.dtype != wanted.dtype || got.device != device || !got.contiguous()) return false;
  if (static_cast<size_t>(got.rank) != wanted.shape.size()) return false;
  return std::equal(wanted.shape.begin(), wanted.shape.end(), got.shape.begin());
}

// One validation run.
class Runner {
 public:
  Runner(const Attention& layer, ContractDevice& device, Executor& executor)
      : layer_(layer), device_(device), executor_(executor) {}

  Result<ContractCase> run(const Wanted& wanted) {
    ContractCase c;
    c.kind = wanted.kind;
    FOVEA_TRY(c.problem, parse_problem(wanted.problem));
    FOVEA_TRY(const RandomInputs inputs, make_random_inputs(c.problem));
    const uint64_t hash = inputs.input_hash();
    CallOptions options = call_options(c.problem);
    options.stream = device_.stream();
    FOVEA_TRY(const AttentionTensors staged, device_.stage(inputs.tensors()));
    FOVEA_TRY(const Problem called, describe(staged, options));
    c.report = layer_.resolve(called)->report;
    if (c.report.support == SupportStatus::unsupported) return c;
    if (wanted.kind == kReplay) {
      FOVEA_CHECK(replay(c, called, staged, options));
      return c;
    }
    FOVEA_CHECK(layer_.run(staged, options));
    FOVEA_CHECK(device_.fetch(inputs.tensors()));
    FOVEA_CHECK(conclude(c, called, staged, options, inputs));
    c.inputs_unchanged =
        c.inputs_unchanged && inputs.input_hash() == hash && inputs.output_guards_intact();
    c.pass = c.pass && c.inputs_unchanged;
    return c;
  }

 private:
  // Two sets of values through one recording; the second is judged.
  Status replay(ContractCase& c, const Problem& called, const AttentionTensors& staged,
                const CallOptions& options) {
    FOVEA_TRY(const std::shared_ptr<const Plan> plan, layer_.plan(called, device_.device()));
    FOVEA_CHECK(device_.record(*plan));
    FOVEA_CHECK(device_.replay());
    Problem other = c.problem;
    other.seed += 1000;
    FOVEA_TRY(const RandomInputs second, make_random_inputs(other));
    FOVEA_CHECK(device_.restage(second.tensors()));
    FOVEA_CHECK(device_.replay());
    FOVEA_CHECK(device_.replay());
    FOVEA_CHECK(device_.fetch(second.tensors()));
    return conclude(c, called, staged, options, second);
  }

  Status conclude(ContractCase& c, const Problem& called, const AttentionTensors& staged,
                  const CallOptions& options, const RandomInputs& inputs) {
    const AttentionTensors& tensors = inputs.tensors();
    FOVEA_TRY(const std::string damage, device_.damage(tensors));
    c.inputs_unchanged = damage.empty();
    FOVEA_TRY(c.form, has_form(called, staged, options));
    FOVEA_TRY(const Figures figures,
              judge(c.problem, tensors, tensors.out, tensors.lse, executor_));
    c.max_abs = figures.out.max_abs;
    c.rel_l2 = figures.out.rel_l2;
    c.lse_error = figures.lse.max_abs;
    c.outside = figures.outside;
    c.finite = figures.finite;
    c.pass = c.form && c.finite && c.inputs_unchanged && c.outside == 0 &&
             figures.out.nonfinite_mismatches == 0;
    if (c.report.lossy) return {};
    const Tolerance bound =
        exact_tolerance(c.problem.dtype, c.problem.out_dtype, DataKind::random, figures.magnitude);
    c.pass = c.pass && within(figures.out, bound.rel_l2) && figures.lse.max_abs <= bound.lse;
    return {};
  }

  // Outputs that the layer allocates itself have the contract's shape, type and device.
  Result<bool> has_form(const Problem& called, const AttentionTensors& staged,
                        const CallOptions& options) const {
    FOVEA_TRY(const OutputSpecs specs, output_spec(called));
    FOVEA_TRY(const AttentionResult result, layer_(staged, options));
    const Device device = staged.q.device;
    return fits(result.out.view(), specs.out, device) && fits(result.lse.view(), specs.lse, device);
  }

  const Attention& layer_;
  ContractDevice& device_;
  Executor& executor_;
};

}  // namespace

const std::vector<std::string>& contract_kinds() {
  static const std::vector<std::string> kinds = {std::string(kDense), std::string(kPadding),
                                                 std::string(kUnequal), std::string(kPacked),
                                                 std::string(kReplay)};
  return kinds;
}

bool ContractRun::pass() const {
  std::set<std::string> kinds;
  for (const ContractCase& c : cases) {
    if (c.report.support == SupportStatus::unsupported) continue;
    if (!c.pass) return false;
    if (c.report.path == path) kinds.insert(c.kind);
  }
  return kinds.contains(std::string(kDense)) && kinds.contains(std::string(kReplay));
}

Result<ContractRun> run_contract(const AttentionConfig& config, const LayerOptions& layer,
                                 ContractDevice& device, Executor& executor,
                                 const Terminal& terminal) {
  FOVEA_TRY(const Attention attention, Attention::create(layer, config, &executor, device.facts()));
  ContractRun run;
  run.facts = device.facts();
  run.device = device.name();
  run.driver = device.driver();
  run.captured = device.captures();
  Runner runner(attention, device, executor);
  const std::vector<Wanted> wanted = wanted_cases();
  for (const Wanted& each : wanted) {
    terminal.progress(
        text::concat("contract ", run.cases.size() + 1, "/", wanted.size(), ": ", each.problem));
    FOVEA_TRY(ContractCase c, runner.run(each));
    if (run.path.empty() && c.report.support != SupportStatus::unsupported) {
      run.backend = c.report.backend;
      run.provider = c.report.provider;
      run.path = c.report.path;
    }
    run.cases.push_back(std::move(c));
  }
  terminal.end_progress();
  if (run.path.empty()) run.backend = run.cases.front().report.backend;
  return run;
}

}  // namespace fovea::cli
