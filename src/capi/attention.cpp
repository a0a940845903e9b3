#include "fovea/attention.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "fovea/joint.hpp"
#include "src/capi/handles.hpp"
#include "src/core/text.hpp"
#include "src/select/report_json.hpp"

using fovea::capi::guard;
using fovea::capi::null_argument;

namespace fovea::capi {
namespace {

fovea_call default_call() {
  fovea_call call{};
  call.window_left = call.window_right = -1;
  return call;
}

Result<TensorView> view_of(const fovea_tensor& t, const char* tensor) {
  TensorView view;
  if (t.rank == 0) return view;
  if (t.rank < 0 || t.rank > kMaxRank)
    return Error{ErrorCode::invalid_tensor,
                 std::string(tensor) + ": rank " + std::to_string(t.rank) + " is not in 0.." +
                     std::to_string(kMaxRank),
                 {}};
  view.data = t.data;
  view.device = {static_cast<DeviceType>(t.device_type), t.device_index};
  view.dtype = {t.dtype_code, t.dtype_bits, t.dtype_lanes};
  view.rank = t.rank;
  std::copy_n(t.shape, kMaxRank, view.shape.begin());
  std::copy_n(t.stride, kMaxRank, view.stride.begin());
  return view;
}

Result<Layout> layout_of(const char* text, const char* field, Layout fallback) {
  if (text == nullptr) return fallback;
  if (auto layout = parse_layout(text)) return *layout;
  return Error{ErrorCode::invalid_argument,
               std::string(field) + " '" + text +
                   "' is not a layout; accepted: bshd (BSND), bhsd (BNSD), packed (THD)",
               {}};
}

struct Call {
  AttentionTensors tensors;
  CallOptions options;
};

Result<Call> read_call(const fovea_call* given, const char* function) {
  FOVEA_TRY(const fovea_call c, sized(given, function, "call", default_call()));
  Call call;
  const auto read = [&](const fovea_tensor& from, const char* name, TensorView& to) -> Status {
    FOVEA_TRY(to, view_of(from, name));
    return {};
  };
  FOVEA_CHECK(read(c.q, "q", call.tensors.q));
  FOVEA_CHECK(read(c.k, "k", call.tensors.k));
  FOVEA_CHECK(read(c.v, "v", call.tensors.v));
  FOVEA_CHECK(read(c.out, "out", call.tensors.out));
  FOVEA_CHECK(read(c.lse, "lse", call.tensors.lse));
  FOVEA_CHECK(read(c.mask, "mask", call.tensors.mask));
  FOVEA_CHECK(read(c.kv_lengths, "kv_lengths", call.tensors.kv_lengths));
  FOVEA_CHECK(read(c.cu_seqlens_q, "cu_seqlens_q", call.tensors.cu_seqlens_q));
  FOVEA_CHECK(read(c.cu_seqlens_kv, "cu_seqlens_kv", call.tensors.cu_seqlens_kv));
  FOVEA_TRY(call.options.input_layout, layout_of(c.input_layout, "input_layout", Layout::bshd));
  FOVEA_TRY(call.options.output_layout,
            layout_of(c.output_layout, "output_layout", call.options.input_layout));
  if (c.has_scale != 0) call.options.scale = c.scale;
  if (c.has_is_causal != 0) call.options.is_causal = c.is_causal != 0;
  call.options.window = {c.window_left, c.window_right};
  call.options.return_lse = call.tensors.lse.present();
  if (call.tensors.out.present()) call.options.out_dtype = call.tensors.out.dtype;
  call.options.max_seqlen_q = c.max_seqlen_q;
  call.options.max_seqlen_kv = c.max_seqlen_kv;
  call.options.stream.handle = c.stream;
  if (c.metadata != nullptr) call.options.metadata = &c.metadata->metadata;
  FOVEA_CHECK(read(c.block_counts, "block_counts", call.tensors.block_counts));
  FOVEA_CHECK(read(c.block_indices, "block_indices", call.tensors.block_indices));
  FOVEA_CHECK(read(c.block_partial, "block_partial", call.tensors.block_partial));
  if (c.block_q != 0) call.options.block_q = c.block_q;
  if (c.block_kv != 0) call.options.block_kv = c.block_kv;
  if (c.block_mask != nullptr) call.options.block_mask = c.block_mask->mask;
  if (c.sparse_state != nullptr) call.options.sparse_state = &c.sparse_state->state;
  if (c.has_timestep != 0) call.options.timestep = c.timestep;
  return call;
}

Result<JointTensors> read_joint(const fovea_joint_tokens* given, const char* function) {
  FOVEA_TRY(const fovea_joint_tokens j, sized(given, function, "joint", fovea_joint_tokens{}));
  JointTensors joint;
  FOVEA_TRY(joint.q, view_of(j.q, "joint q"));
  FOVEA_TRY(joint.k, view_of(j.k, "joint k"));
  FOVEA_TRY(joint.v, view_of(j.v, "joint v"));
  const std::string_view strategy = j.strategy == nullptr ? "front" : j.strategy;
  for (const JointStrategy each : {JointStrategy::front, JointStrategy::rear}) {
    if (name(each) != strategy) continue;
    joint.strategy = each;
    return joint;
  }
  return Error{ErrorCode::invalid_argument,
               std::string(function) + ": strategy '" + std::string(strategy) +
                   "' is not known (accepted: front, rear)",
               {}};
}

const AttentionMetadata& metadata_of(const Call& call) {
  static const AttentionMetadata kNothing;
  return call.options.metadata == nullptr ? kNothing : *call.options.metadata;
}

// The enumerator of a word, or nothing.
template <class E, size_t N>
std::optional<E> parse_word(std::string_view word, const E (&choices)[N]) {
  for (E choice : choices)
    if (name(choice) == word) return choice;
  return std::nullopt;
}

Result<ExecutionContext> read_surroundings(const fovea_surroundings* given, const char* function) {
  ExecutionContext context;
  if (given == nullptr) return context;
  FOVEA_TRY(const fovea_surroundings s,
            sized(given, function, "surroundings", fovea_surroundings{}));
  const auto refuse = [&](const char* field, std::string_view word, const char* accepted) -> Error {
    return {ErrorCode::invalid_argument,
            std::string(function) + ": " + field + " '" + std::string(word) + "' is not known (" +
                "accepted: " + accepted + ")",
            {}};
  };
  if (s.parallel_strategy != nullptr) {
    constexpr ParallelStrategy kStrategies[] = {
        ParallelStrategy::none, ParallelStrategy::ulysses, ParallelStrategy::ring,
        ParallelStrategy::hybrid_ulysses_ring, ParallelStrategy::allgather_kv};
    const auto strategy = parse_word(std::string_view(s.parallel_strategy), kStrategies);
    if (!strategy)
      return refuse("parallel_strategy", s.parallel_strategy,
                    "none, ulysses, ring, hybrid_ulysses_ring, allgather_kv");
    context.parallel_strategy = *strategy;
  }
  if (s.outer_boundaries != nullptr) {
    constexpr OuterBoundary kBoundaries[] = {OuterBoundary::hsdp,
                                             OuterBoundary::attention_schedule};
    for (std::string_view word : text::split(s.outer_boundaries, ',')) {
      const auto boundary = parse_word(text::trim(word), kBoundaries);
      if (!boundary) return refuse("outer_boundaries", word, "hsdp, attention_schedule");
      context.outer_boundaries.push_back(*boundary);
    }
  }
  context.paged_kv = s.paged_kv != 0;
  if (s.kv_cache_dtype != nullptr) context.kv_cache_dtype = s.kv_cache_dtype;
  context.require_fullgraph = s.require_fullgraph != 0;
  return context;
}

report::Json json_of(const ExecutionPathResult& r, const CapabilityResult& requested) {
  return {{"backend", name(r.backend)},
          {"provider", report::text(r.provider)},
          {"platform", name(r.platform)},
          {"kernel_variant", report::text(r.kernel_variant)},
          {"path", report::text(r.path)},
          {"instance", report::text(r.instance)},
          {"support", name(r.support)},
          {"compilation_mode", name(r.compilation_mode)},
          {"parallel_strategy", name(r.parallel_strategy)},
          {"built", r.built},
          {"lossy", r.lossy},
          {"workspace_bytes", r.workspace_bytes},
          {"reasons", report::reasons(r.reasons)},
          {"requested",
           {{"status", name(requested.status)}, {"reasons", report::reasons(requested.reasons)}}}};
}

// Plans see a finished problem, so the configuration's scale and causal flag are filled in here.
void apply(const fovea_call_defaults& defaults, CallOptions& options) {
  if (!options.scale) options.scale = defaults.scale;
  if (!options.is_causal) options.is_causal = defaults.is_causal;
}

// Whether the gate of skip_softmax is open for the call; nothing without a gate or a timestep.
std::optional<bool> gate_is_open(const fovea_call_defaults& defaults, const CallOptions& options) {
  if (!(defaults.skip_gate > 0) || !options.timestep) return std::nullopt;
  return *options.timestep <= defaults.skip_gate;
}

fovea_tensor tensor_of(const OutputSpec& spec, Device device) {
  fovea_tensor t{};
  t.device_type = static_cast<int32_t>(device.type);
  t.device_index = device.index;
  t.dtype_code = spec.dtype.code;
  t.dtype_bits = spec.dtype.bits;
  t.dtype_lanes = spec.dtype.lanes;
  t.rank = static_cast<int32_t>(spec.shape.size());
  std::copy(spec.shape.begin(), spec.shape.end(), t.shape);
  std::copy(spec.strides.begin(), spec.strides.end(), t.stride);
  return t;
}

Error need_out(const char* function) {
  return {ErrorCode::invalid_tensor,
          std::string(function) +
              ": call->out is absent; its shape and strides come from fovea_output_spec",
          {}};
}

}  // namespace
}  // namespace fovea::capi

extern "C" {

int32_t fovea_attention_create(const fovea_layer_options* options, const fovea_config* config,
                               fovea_attention** attention, fovea_error** error) {
  return guard(error, [&]() -> fovea::Status {
    constexpr const char* kFunction = "fovea_attention_create";
    if (attention == nullptr) return null_argument(kFunction, "attention");
    FOVEA_TRY(const fovea_layer_options o,
              fovea::capi::sized(options, kFunction, "options", fovea_layer_options{}));
    fovea::LayerOptions layer;
    if (o.role != nullptr) layer.role = o.role;
    if (o.category != nullptr) layer.category = o.category;
    layer.heads_q = o.heads_q;
    layer.heads_kv = o.heads_kv;
    layer.head_dim = o.head_dim;
    layer.dim_v = o.dim_v;
    layer.mask_free = o.mask_free != 0;
    if (o.name != nullptr) layer.name = o.name;
    if (o.calibration != nullptr) {
      FOVEA_TRY(fovea::SkipSoftmaxCalibration calibration, fovea::parse_calibration(o.calibration));
      layer.calibration =
          std::make_shared<const fovea::SkipSoftmaxCalibration>(std::move(calibration));
    }
    fovea_call_defaults defaults;
    if (config != nullptr) {
      const fovea::ResolvedSpec resolved = config->config.resolve(layer.role, layer.category);
      if (resolved.spec != nullptr) {
        defaults = {resolved.spec->scale, resolved.spec->is_causal};
        if (resolved.spec->skip_softmax)
          defaults.skip_gate = resolved.spec->skip_softmax->disabled_until_timestep;
      }
    }
    std::optional<fovea::DeviceFacts> facts;
    if (o.platform != nullptr) {
      FOVEA_TRY(const fovea::PlatformId platform, fovea::parse_platform(o.platform));
      FOVEA_TRY(facts, fovea::parse_facts(platform, o.facts == nullptr ? "" : o.facts));
    }
    std::unique_ptr<fovea::Executor> executor = fovea::make_openmp_executor(o.threads);
    FOVEA_TRY(fovea::Attention built,
              fovea::Attention::create(
                  std::move(layer), config == nullptr ? fovea::AttentionConfig{} : config->config,
                  executor.get(), std::move(facts)));
    *attention = new fovea_attention{std::move(executor), std::move(built), defaults};
    return {};
  });
}

void fovea_attention_free(fovea_attention* attention) { delete attention; }

int32_t fovea_output_spec(const fovea_call* call, fovea_tensor* out, fovea_tensor* lse,
                          fovea_error** error) {
  return guard(error, [&]() -> fovea::Status {
    if (out == nullptr) return null_argument("fovea_output_spec", "out");
    FOVEA_TRY(fovea::capi::Call c, fovea::capi::read_call(call, "fovea_output_spec"));
    c.tensors.out = {};
    c.tensors.lse = {};
    FOVEA_TRY(const fovea::Problem problem, fovea::describe(c.tensors, c.options));
    FOVEA_TRY(const fovea::OutputSpecs specs, fovea::output_spec(problem));
    *out = fovea::capi::tensor_of(specs.out, c.tensors.q.device);
    if (lse != nullptr) *lse = fovea::capi::tensor_of(specs.lse, c.tensors.q.device);
    return {};
  });
}

int32_t fovea_attention_run(const fovea_attention* attention, const fovea_call* call,
                            fovea_receipt** receipt, fovea_error** error) {
  return guard(error, [&]() -> fovea::Status {
    constexpr const char* kFunction = "fovea_attention_run";
    if (attention == nullptr) return null_argument(kFunction, "attention");
    FOVEA_TRY(const fovea::capi::Call c, fovea::capi::read_call(call, kFunction));
    if (!c.tensors.out.present()) return fovea::capi::need_out(kFunction);
    FOVEA_TRY(const std::shared_ptr<const fovea::Receipt> done,
              attention->attention.run(c.tensors, c.options));
    if (receipt != nullptr) *receipt = new fovea_receipt{fovea::report::receipt(*done).dump()};
    return {};
  });
}

int32_t fovea_attention_run_jointly(const fovea_attention* attention, const fovea_call* call,
                                    const fovea_joint_tokens* joint, fovea_receipt** receipt,
                                    fovea_error** error) {
  return guard(error, [&]() -> fovea::Status {
    constexpr const char* kFunction = "fovea_attention_run_jointly";
    if (attention == nullptr) return null_argument(kFunction, "attention");
    FOVEA_TRY(const fovea::capi::Call c, fovea::capi::read_call(call, kFunction));
    FOVEA_TRY(const fovea::JointTensors other, fovea::capi::read_joint(joint, kFunction));
    if (!c.tensors.out.present()) return fovea::capi::need_out(kFunction);
    FOVEA_TRY(const std::shared_ptr<const fovea::Receipt> done,
              fovea::run_jointly(attention->attention, c.tensors, other, c.options));
    if (receipt != nullptr) *receipt = new fovea_receipt{fovea::report::receipt(*done).dump()};
    return {};
  });
}

int32_t fovea_attention_plan(const fovea_attention* attention, const fovea_call* call,
                             fovea_plan** plan, fovea_error** error) {
  return guard(error, [&]() -> fovea::Status {
    constexpr const char* kFunction = "fovea_attention_plan";
    if (attention == nullptr) return null_argument(kFunction, "attention");
    if (plan == nullptr) return null_argument(kFunction, "plan");
    FOVEA_TRY(const fovea::capi::Call c, fovea::capi::read_call(call, kFunction));
    FOVEA_TRY(fovea::CallPlan made, attention->attention.plan(c.tensors, c.options));
    *plan = new fovea_plan{std::move(made), attention->defaults,
                           fovea::capi::metadata_of(c).protected_kv_prefix,
                           fovea::capi::gate_is_open(attention->defaults, c.options)};
    return {};
  });
}

size_t fovea_plan_workspace_bytes(const fovea_plan* plan) {
  return plan == nullptr ? 0 : plan->plan.plan->workspace_bytes();
}

int32_t fovea_plan_receipt(const fovea_plan* plan, fovea_receipt** receipt, fovea_error** error) {
  return guard(error, [&]() -> fovea::Status {
    if (plan == nullptr) return null_argument("fovea_plan_receipt", "plan");
    if (receipt == nullptr) return null_argument("fovea_plan_receipt", "receipt");
    *receipt = new fovea_receipt{fovea::report::receipt(*plan->plan.receipt).dump()};
    return {};
  });
}

int32_t fovea_plan_problem(const fovea_plan* plan, char** text, fovea_error** error) {
  return guard(error, [&]() -> fovea::Status {
    if (plan == nullptr) return null_argument("fovea_plan_problem", "plan");
    if (text == nullptr) return null_argument("fovea_plan_problem", "text");
    *text = fovea::capi::copy(to_string(plan->plan.problem));
    return {};
  });
}

int32_t fovea_plan_run(const fovea_plan* plan, const fovea_call* call, void* workspace,
                       size_t workspace_bytes, fovea_error** error) {
  return guard(error, [&]() -> fovea::Status {
    constexpr const char* kFunction = "fovea_plan_run";
    if (plan == nullptr) return null_argument(kFunction, "plan");
    FOVEA_TRY(fovea::capi::Call c, fovea::capi::read_call(call, kFunction));
    fovea::capi::apply(plan->defaults, c.options);
    if (!c.tensors.out.present()) return fovea::capi::need_out(kFunction);
    FOVEA_TRY(const fovea::Problem problem, fovea::describe(c.tensors, c.options));
    FOVEA_TRY(const fovea::NormalForm form, fovea::normalise(problem, fovea::capi::metadata_of(c)));
    if (form.problem != plan->plan.problem)
      return fovea::Error{fovea::ErrorCode::invalid_tensor,
                          "fovea_plan_run: the call is '" + to_string(form.problem) +
                              "' but the plan is for '" + to_string(plan->plan.problem) +
                              "'; make a plan for it",
                          {}};
    if (form.protected_kv_prefix != plan->protected_kv_prefix)
      return fovea::Error{fovea::ErrorCode::invalid_argument,
                          "fovea_plan_run: the call protects " +
                              std::to_string(form.protected_kv_prefix) +
                              " keys but the plan was made for " +
                              std::to_string(plan->protected_kv_prefix) + "; make a plan for it",
                          {}};
    if (fovea::capi::gate_is_open(plan->defaults, c.options) != plan->skips)
      return fovea::Error{fovea::ErrorCode::invalid_argument,
                          "fovea_plan_run: the plan was made for another side of "
                          "skip_softmax.disabled_until_timestep than the call's timestep; make a "
                          "plan for it",
                          {}};
    if (plan->plan.without_lists)
      c.tensors.block_counts = c.tensors.block_indices = c.tensors.block_partial = {};
    return plan->plan.plan->run(fovea::apply(form, c.tensors), {workspace, workspace_bytes},
                                c.options.stream);
  });
}

void fovea_plan_free(fovea_plan* plan) { delete plan; }

int32_t fovea_metadata_create(const char* json, fovea_metadata** metadata, fovea_error** error) {
  return guard(error, [&]() -> fovea::Status {
    if (json == nullptr) return null_argument("fovea_metadata_create", "json");
    if (metadata == nullptr) return null_argument("fovea_metadata_create", "metadata");
    FOVEA_TRY(fovea::AttentionMetadata read, fovea::parse_metadata(json));
    *metadata = new fovea_metadata{std::move(read)};
    return {};
  });
}

void fovea_metadata_free(fovea_metadata* metadata) { delete metadata; }

int32_t fovea_attention_resolve(const fovea_attention* attention, const fovea_call* call,
                                const fovea_surroundings* surroundings, char** json,
                                fovea_error** error) {
  return guard(error, [&]() -> fovea::Status {
    constexpr const char* kFunction = "fovea_attention_resolve";
    if (attention == nullptr) return null_argument(kFunction, "attention");
    if (json == nullptr) return null_argument(kFunction, "json");
    FOVEA_TRY(const fovea::capi::Call c, fovea::capi::read_call(call, kFunction));
    FOVEA_TRY(const fovea::ExecutionContext context,
              fovea::capi::read_surroundings(surroundings, kFunction));
    FOVEA_TRY(const fovea::ExecutionPathResult report,
              attention->attention.resolve_execution_path(c.tensors, c.options, context));
    const fovea::CapabilityResult requested =
        fovea::requested_support(report, context.require_fullgraph);
    *json = fovea::capi::copy(fovea::capi::json_of(report, requested).dump());
    if (*json == nullptr)
      return fovea::Error{fovea::ErrorCode::out_of_memory, "no memory for the report", {}};
    return {};
  });
}

const char* fovea_receipt_json(const fovea_receipt* receipt) {
  return receipt == nullptr ? "" : receipt->json.c_str();
}

void fovea_receipt_free(fovea_receipt* receipt) { delete receipt; }

}  // extern "C"
