#include "src/validation/contract.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "src/backends/reference/agreement.hpp"
#include "src/backends/reference/attend.hpp"
#include "src/core/element.hpp"
#include "src/core/random_inputs.hpp"
#include "src/core/tolerance.hpp"
#include "src/validation/sparse_call.hpp"

namespace fovea::validation {

namespace {

namespace reference = backends::reference;

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
    if (!lse_.present()) return;
    const double lse = load_element(lse_.data, kF32, reference::lse_offset(problem_, here));
    const double expected = oracle.lse[static_cast<size_t>(reference::lse_offset(part, row))];
    finite_ = finite_ && (std::isfinite(lse) || lse == expected);  // -inf: the row sees no key
    lse_sum_.add(lse, expected);
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
                      TensorView lse, const BlockMask* mask, Executor& executor) {
  Judge sums(problem, out, lse);
  if (problem.layout != Layout::packed) {
    FOVEA_TRY(const reference::Oracle oracle,
              reference::compute_oracle(problem, inputs, executor, mask));
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

// The lists of a block mask as tensors of the call; the mask outlives it.
void set_lists(const BlockMask& mask, AttentionTensors& tensors) {
  const BlockMaskShape& s = mask.shape();
  const auto memory = [](std::span<const int32_t> values) {
    return const_cast<int32_t*>(values.data());  // inputs are never written
  };
  tensors.block_counts = make_view(memory(mask.counts()), kI32, {s.batch, s.heads, mask.rows()});
  tensors.block_indices =
      make_view(memory(mask.indices()), kI32, {s.batch, s.heads, mask.rows(), mask.max_count()});
}

CallOptions call_options(const Problem& problem) {
  CallOptions options;
  options.input_layout = problem.layout;
  options.output_layout = problem.out_layout;
  options.return_lse = problem.lse;
  options.out_dtype = problem.out_dtype;
  options.max_seqlen_q = problem.max_document_q;
  options.max_seqlen_kv = problem.max_document_kv;
  return options;
}

// The values of one call, in host memory.
struct Inputs {
  RandomInputs random;
  std::optional<SparseCall> sparse;
  AttentionTensors tensors;
};

// One validation run.
class Runner {
 public:
  Runner(const AttentionConfig& config, const LayerOptions& layer, RunDevice& device,
         Executor& executor)
      : config_(config), layer_options_(layer), device_(device), executor_(executor) {}

  Result<CaseResult> run(const Case& wanted) {
    CaseResult c;
    c.kind = wanted.kind;
    c.metadata = wanted.metadata;
    FOVEA_TRY(c.problem, parse_problem(wanted.problem));
    FOVEA_TRY(Inputs inputs, make_inputs(c.problem));
    FOVEA_TRY(const Attention layer,
              Attention::create(layer_options_, inputs.sparse ? inputs.sparse->config : config_,
                                &executor_, device_.facts()));
    FOVEA_TRY(AttentionTensors staged, device_.stage(inputs.tensors));
    FOVEA_TRY(c.report, layer.resolve_execution_path(staged, options_of(c, inputs), {}));
    if (!c.ran()) {
      // The same without the LSE, for paths that do not return it.
      CaseResult other = c;
      other.problem.lse = false;
      FOVEA_TRY(inputs, make_inputs(other.problem));
      FOVEA_TRY(staged, device_.stage(inputs.tensors));
      FOVEA_TRY(other.report, layer.resolve_execution_path(staged, options_of(other, inputs), {}));
      if (!other.ran()) return c;
      c = std::move(other);
    }
    return finish(std::move(c), layer, std::move(inputs), staged, wanted.kind == kReplay);
  }

 private:
  Result<Inputs> make_inputs(const Problem& problem) const {
    FOVEA_TRY(RandomInputs random, make_random_inputs(problem));
    Inputs inputs{std::move(random), {}, {}};
    inputs.tensors = inputs.random.tensors();
    if (!problem.sparse) return Result<Inputs>(std::move(inputs));
    FOVEA_TRY(inputs.sparse,
              make_sparse_call(problem, config_, layer_options_, inputs.tensors, executor_));
    if (inputs.sparse->given != nullptr) set_lists(*inputs.sparse->given, inputs.tensors);
    return Result<Inputs>(std::move(inputs));
  }

  CallOptions options_of(const CaseResult& c, const Inputs& inputs) const {
    CallOptions options = call_options(c.problem);
    options.stream = device_.stream();
    options.metadata = &c.metadata;
    if (!inputs.sparse) return options;
    if (inputs.sparse->state) options.sparse_state = &*inputs.sparse->state;
    if (inputs.sparse->given != nullptr) {
      options.block_q = inputs.sparse->given->shape().block_q;
      options.block_kv = inputs.sparse->given->shape().block_kv;
    }
    return options;
  }

  // A kernel that fails is a case that failed, not the end of the run.
  static bool report(CaseResult& c, const Status& status) {
    if (!status) c.error = status.error().message;
    return status.has_value();
  }

  // Runs the case and judges what came out.
  Result<CaseResult> finish(CaseResult c, const Attention& layer, Inputs inputs,
                            const AttentionTensors& staged, bool replayed) {
    const CallOptions options = options_of(c, inputs);
    FOVEA_TRY(const Problem called, describe(staged, options));
    FOVEA_TRY(const NormalForm form, normalise(called, c.metadata));
    FOVEA_TRY(const CallPlan planned, layer.plan(staged, options));
    const AttentionTensors ready = apply(form, staged);
    const uint64_t hash = inputs.random.input_hash();
    if (replayed) {
      // Two sets of values through one recording; the second is judged.
      if (!report(c, device_.record(*planned.plan, ready))) return c;
      if (!report(c, device_.replay())) return c;
      Problem other = c.problem;
      other.seed += 1000;
      FOVEA_TRY(Inputs second, make_inputs(other));
      // Lists that a caller gives are part of the recorded call, as its lengths are.
      second.tensors.block_counts = inputs.tensors.block_counts;
      second.tensors.block_indices = inputs.tensors.block_indices;
      if (inputs.sparse && inputs.sparse->given != nullptr)
        second.sparse->mask = inputs.sparse->mask;
      FOVEA_CHECK(device_.restage(second.tensors));
      if (!report(c, device_.replay()) || !report(c, device_.replay())) return c;
      FOVEA_CHECK(device_.fetch(second.tensors));
      FOVEA_CHECK(conclude(c, layer, called, staged, options, second));
      return c;
    }
    if (!report(c, device_.run(*planned.plan, ready))) return c;
    FOVEA_CHECK(device_.fetch(inputs.tensors));
    FOVEA_CHECK(conclude(c, layer, called, staged, options, inputs));
    c.inputs_unchanged = c.inputs_unchanged && inputs.random.input_hash() == hash &&
                         inputs.random.output_guards_intact();
    c.pass = c.pass && c.inputs_unchanged;
    return c;
  }

  Status conclude(CaseResult& c, const Attention& layer, const Problem& called,
                  const AttentionTensors& staged, const CallOptions& options,
                  const Inputs& inputs) {
    const AttentionTensors& tensors = inputs.tensors;
    FOVEA_TRY(const std::string damage, device_.damage(tensors));
    c.inputs_unchanged = damage.empty();
    FOVEA_TRY(c.form, has_form(layer, called, staged, options));
    FOVEA_TRY(const Figures figures, judged(c, inputs));
    c.max_abs = figures.out.max_abs;
    c.rel_l2 = figures.out.rel_l2;
    c.lse_error = figures.lse.max_abs;
    c.outside = figures.outside;
    c.finite = figures.finite;
    c.pass = c.form && c.finite && c.inputs_unchanged && c.outside == 0 &&
             figures.out.nonfinite_mismatches == 0;
    // A selection of blocks is lossy, but not what attends to the blocks.
    if (c.report.lossy && !inputs.sparse) return {};
    const Tolerance bound =
        exact_tolerance(c.problem.dtype, c.problem.out_dtype, DataKind::random, figures.magnitude);
    c.pass = c.pass && within(figures.out, bound.rel_l2) && figures.lse.max_abs <= bound.lse;
    return {};
  }

  Result<Figures> judged(const CaseResult& c, const Inputs& inputs) const {
    AttentionTensors tensors = inputs.tensors;
    tensors.block_counts = tensors.block_indices = {};
    Problem problem = c.problem;
    problem.sparse.reset();
    const BlockMask* mask = inputs.sparse ? inputs.sparse->mask.get() : nullptr;
    if (!c.metadata.packed_padding)
      return judge(problem, tensors, tensors.out, tensors.lse, mask, executor_);
    // Behind the tokens lies padding; their rows are compared.
    auto length = static_cast<int32_t>(c.metadata.packed_padding->kv_length);
    problem.has_kv_lengths = true;
    problem.kv_length_values = {length};
    tensors.kv_lengths = make_view(&length, kI32, {1});
    return judge(problem, tensors, tensors.out, tensors.lse, mask, executor_);
  }

  // The outputs have the contract's shape, type and device: those that a layer allocates itself
  // where it can, else those that it filled.
  Result<bool> has_form(const Attention& layer, const Problem& called,
                        const AttentionTensors& staged, const CallOptions& options) const {
    FOVEA_TRY(const OutputSpecs specs, output_spec(called));
    const Device device = staged.q.device;
    if (!device_.allocates())
      return fits(staged.out, specs.out, device) &&
             (!called.lse || fits(staged.lse, specs.lse, device));
    FOVEA_TRY(const AttentionResult result, layer(staged, options));
    return fits(result.out.view(), specs.out, device) &&
           (!called.lse || fits(result.lse.view(), specs.lse, device));
  }

  const AttentionConfig& config_;
  const LayerOptions& layer_options_;
  RunDevice& device_;
  Executor& executor_;
};

}  // namespace

std::vector<std::string> ContractRun::paths() const {
  std::vector<std::string> list;
  for (const CaseResult& c : cases)
    if (c.ran() && std::find(list.begin(), list.end(), c.report.path) == list.end())
      list.push_back(c.report.path);
  return list;
}

std::vector<std::string> ContractRun::kinds(std::string_view on) const {
  std::vector<std::string> list;
  for (const CaseResult& c : cases)
    if (c.ran() && c.report.path == on && std::find(list.begin(), list.end(), c.kind) == list.end())
      list.push_back(c.kind);
  return list;
}

bool ContractRun::pass() const {
  if (!std::all_of(cases.begin(), cases.end(),
                   [](const CaseResult& c) { return !c.ran() || c.pass; }))
    return false;
  return std::any_of(cases.begin(), cases.end(),
                     [](const CaseResult& c) { return c.ran() && c.kind == kReplay; });
}

Result<ContractRun> run_contract(const AttentionConfig& config, const LayerOptions& layer,
                                 RunDevice& device, Executor& executor, const Progress& progress) {
  ContractRun run;
  run.facts = device.facts();
  run.device = device.name();
  run.driver = device.driver();
  run.captured = device.captures();
  const auto platform = make_platform(run.facts);
  const ResolvedSpec resolved = config.resolve(layer.role, layer.category);
  if (resolved.spec != nullptr) {
    run.backend = resolved.spec->backend;
  } else {
    const std::vector<PolicyVerdict> preference = platform->preference({});
    if (!preference.empty()) run.backend = preference.front().backend;
  }
  Runner runner(config, layer, device, executor);
  const std::vector<Case> wanted = validation_cases(run.backend, run.facts);
  for (const Case& each : wanted) {
    if (progress) progress(run.cases.size(), wanted.size(), each.problem);
    FOVEA_TRY(CaseResult c, runner.run(each));
    if (run.path.empty() && c.ran()) {
      run.backend = c.report.backend;
      run.provider = c.report.provider;
      run.path = c.report.path;
    }
    run.cases.push_back(std::move(c));
  }
  return run;
}

}  // namespace fovea::validation
