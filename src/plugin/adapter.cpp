#include "src/plugin/adapter.hpp"
#include "src/config/rules.hpp"

#include <atomic>
#include <cmath>
#include <utility>

#include "fovea/attention.hpp"
#include "fovea/executor.hpp"
#include "fovea/validation.hpp"
#include "src/backends/instance.hpp"
#include "src/backends/run_tensors.hpp"
#include "src/backends/skip_decision.hpp"
#include "src/core/text.hpp"
#include "src/plugin/options.hpp"
#include "src/plugin/platform.hpp"

namespace fovea::plugin {
namespace {

bool name_character(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

// The error of a call that returned `code`; unknown numbers are kept in the message.
Error failed(std::string_view who, std::string_view function, int32_t code, const Sink& sink) {
  const auto known = static_cast<ErrorCode>(code);
  const bool understood = code > 0 && code <= 999 && name(known) != "unknown";
  std::string what = text::concat(
      function, understood ? " failed (" : " returned the unknown code ",
      understood ? std::string(name(known)) : std::to_string(code), understood ? ")" : "");
  if (!sink.message().empty()) what += ": " + sink.message();
  Error error = misbehaved(who, std::move(what));
  if (understood) error.code = known;
  return error;
}

// A plan of a plugin. Frees it at the end.
class PluginPlan final : public Plan {
 public:
  PluginPlan(std::shared_ptr<const BackendEntries> entries, void* plan, Problem problem,
             Executor& executor, Device device, std::string who)
      : entries_(std::move(entries)),
        plan_(plan),
        problem_(std::move(problem)),
        executor_(executor),
        device_(device),
        who_(std::move(who)) {}
  PluginPlan(const PluginPlan&) = delete;
  PluginPlan& operator=(const PluginPlan&) = delete;
  ~PluginPlan() override {
    try {
      if (entries_->calls.release != nullptr) entries_->calls.release(entries_->calls.self, plan_);
    } catch (...) {
      // Nobody can be told; what the plan held is lost.
    }
  }

  size_t workspace_bytes() const noexcept override { return receipt_.workspace_bytes; }
  const Receipt& receipt() const noexcept override { return receipt_; }
  void set_receipt(Receipt receipt) { receipt_ = std::move(receipt); }

  Status run(const AttentionTensors& tensors, Workspace workspace,
             Stream stream) const noexcept override {
    FOVEA_CHECK(backends::check_tensors(problem_, tensors, device_));
    FOVEA_CHECK(backends::check_workspace(workspace, workspace_bytes()));
    if (device_ == kCpu) FOVEA_CHECK(check_values(tensors, problem_));
    Sink sink;
    Tasks tasks{executor_};
    fovea_plugin_run call{};
    call.struct_size = sizeof call;
    call.q = to_wire(tensors.q);
    call.k = to_wire(tensors.k);
    call.v = to_wire(tensors.v);
    call.out = to_wire(tensors.out);
    call.lse = to_wire(tensors.lse);
    call.mask = to_wire(tensors.mask);
    call.kv_lengths = to_wire(tensors.kv_lengths);
    call.cu_seqlens_q = to_wire(tensors.cu_seqlens_q);
    call.cu_seqlens_kv = to_wire(tensors.cu_seqlens_kv);
    call.workspace = workspace.data;
    call.workspace_bytes = workspace.bytes;
    call.stream = stream.handle;
    call.host = &tasks;
    call.workers = executor_.workers();
    call.parallel_for = &PluginPlan::parallel_for;
    int32_t code = FOVEA_OK;
    FOVEA_CHECK(guarded(who_, "run", [&] {
      code = entries_->calls.run(entries_->calls.self, plan_, &call, sink.get());
    }));
    if (tasks.threw.load()) return misbehaved(who_, "a task of run threw an exception");
    if (code != FOVEA_OK) return failed(who_, "run", code, sink);
    return {};
  }

 private:
  struct Tasks {
    Executor& executor;
    std::atomic<bool> threw{false};
  };

  static void parallel_for(const fovea_plugin_run* call, int64_t count, fovea_plugin_task task,
                           void* user) noexcept {
    if (count <= 0 || task == nullptr) return;
    Tasks& tasks = *static_cast<Tasks*>(call->host);
    tasks.executor.parallel_for(count, [&](int64_t index, int worker) {
      try {
        task(user, index, worker);
      } catch (...) {
        tasks.threw.store(true);
      }
    });
  }

  std::shared_ptr<const BackendEntries> entries_;
  void* plan_;
  Problem problem_;
  Executor& executor_;
  Device device_;
  std::string who_;
  Receipt receipt_;
};

// A report with the fields of the receipt that only a plugin's answer has.
struct Answer {
  ExecutionPathResult report;
  Receipt receipt;
};

class PluginBackend final : public Backend {
 public:
  PluginBackend(BackendEntries entries, std::string path, std::string provider)
      : entries_(std::make_shared<const BackendEntries>(std::move(entries))),
        path_(std::move(path)),
        who_(path_.substr(path_.find(':') + 1)),
        provider_(std::move(provider)) {}

  std::string_view path() const noexcept override { return path_; }

  ExecutionPathResult resolve(BackendName backend, const Problem& problem,
                              const AttentionSpec* spec,
                              const ExecutionContext& context) const override {
    return ask(backend, problem, spec, context).report;
  }

  Result<std::unique_ptr<Plan>> plan(BackendName backend, const Problem& problem,
                                     const AttentionSpec* spec,
                                     const ExecutionContext& context) const override {
    Answer answer = ask(backend, problem, spec, context);
    FOVEA_CHECK(backends::admit(answer.report, problem, context));
    const auto device = device_of(context.facts.platform());
    if (!device)
      return misbehaved(who_, "tensors of " + std::string(name(context.facts.platform())) +
                                  " cannot be passed yet");
    const fovea_plugin_backend& calls = entries_->calls;
    const WireProblem wire(problem);
    const WireContext where(backend, problem, spec, context);
    Sink sink;
    void* made = nullptr;
    int32_t code = FOVEA_OK;
    FOVEA_CHECK(guarded(who_, "plan", [&] {
      code = calls.plan(calls.self, wire.get(), where.get(), &made, sink.get());
    }));
    if (code != FOVEA_OK) {
      Error error = failed(who_, "plan", code, sink);
      for (Reason& reason : sink.reasons()) {
        error.message += "; " + sentence(reason);
        error.reasons.push_back(std::move(reason));
      }
      return error;
    }
    if (made == nullptr) return misbehaved(who_, "plan succeeded but returned NULL");
    Executor& executor = context.executor == nullptr ? serial_executor() : *context.executor;
    const Device where_to = context.device.type == *device ? context.device : Device{*device, 0};
    auto plan = std::make_unique<PluginPlan>(entries_, made, problem, executor, where_to, who_);
    uint64_t bytes = 0;
    if (calls.workspace_bytes != nullptr)
      FOVEA_CHECK(guarded(who_, "workspace_bytes",
                          [&] { bytes = calls.workspace_bytes(calls.self, made); }));
    if (bytes > kMaxWorkspaceBytes) return impossible_workspace(bytes);
    answer.receipt.workspace_bytes = static_cast<size_t>(bytes);
    answer.receipt.skip = backends::skip_decision(spec, problem, context);
    plan->set_receipt(std::move(answer.receipt));
    return std::unique_ptr<Plan>(std::move(plan));
  }

 private:
  Error impossible_workspace(uint64_t bytes) const {
    return misbehaved(who_, "asks for a workspace of " + std::to_string(bytes) +
                                " bytes, more than any machine has");
  }

  // resolve, with every answer that makes no sense turned into a refusal.
  Answer ask(BackendName backend, const Problem& problem, const AttentionSpec* spec,
             const ExecutionContext& context) const {
    Answer answer;
    ExecutionPathResult& r = answer.report;
    r.backend = backend;
    r.provider = provider_;
    r.path = "plugin." + entries_->name;
    r.instance = "default";
    const std::string blocks = spec == nullptr ? std::string() : config::option_blocks(*spec);
    const bool extra = spec != nullptr && !spec->extra.empty() && entries_->options.empty();
    if ((extra || !blocks.empty()) && entries_->calls.reads_options == 0) {
      r.reasons.push_back({ReasonCode::option_owner, "options of " + name(backend),
                           extra ? blocks + (blocks.empty() ? "extra" : ", extra") : blocks,
                           "none: the plugin reads no options", "remove them"});
      return answer;
    }
    // What the interface has no words for.
    if (!problem.pieces.empty())
      r.reasons.push_back({ReasonCode::piecewise, "pieces", std::to_string(problem.pieces.size()),
                           "none", "pass a mask [1,1,Sq,Skv]"});
    if (context.laser_input_scale)
      r.reasons.push_back({ReasonCode::metadata, "laser_input_scale",
                           text::format_number(*context.laser_input_scale), "none",
                           "only Ascend laser attention reads it; leave it out"});
    if (!context.prepared.empty())
      r.reasons.push_back({ReasonCode::prepared, "prepared tensors", context.prepared, "none",
                           "drop them or choose a backend that reads them"});
    backends::refuse_host_numbers(r.reasons, context);
    if (!r.reasons.empty()) return answer;
    const WireProblem wire(problem);
    const WireContext where(backend, problem, spec, context);
    Sink sink;
    fovea_plugin_report out{};
    out.struct_size = sizeof out;
    out.support = FOVEA_UNSUPPORTED;
    out.compilation_mode = FOVEA_EAGER_ONLY;
    int32_t code = FOVEA_OK;
    const Status done = guarded(who_, "resolve", [&] {
      code =
          entries_->calls.resolve(entries_->calls.self, wire.get(), where.get(), &out, sink.get());
    });
    if (!done) {
      r.reasons = done.error().reasons;
    } else if (code != FOVEA_OK) {
      r.reasons = failed(who_, "resolve", code, sink).reasons;
    } else if (Status sound = check(out); !sound) {
      r.reasons = sound.error().reasons;
    } else {
      fill(out, problem, context, answer);
      r.reasons = std::move(sink.reasons());
      if (r.support == SupportStatus::unsupported && r.reasons.empty())
        r.reasons = misbehaved(who_, "resolve refused without a reason").reasons;
    }
    return answer;
  }

  Status check(const fovea_plugin_report& out) const {
    if (out.support < FOVEA_SUPPORTED || out.support > FOVEA_UNMIGRATED)
      return misbehaved(who_, "resolve answered support " + std::to_string(out.support) +
                                  ", which is not in 0..2");
    if (out.compilation_mode < FOVEA_TRACEABLE || out.compilation_mode > FOVEA_EAGER_ONLY)
      return misbehaved(who_, "resolve answered compilation_mode " +
                                  std::to_string(out.compilation_mode) + ", which is not in 0..2");
    if (out.has_density != 0 && !(out.density >= 0.0 && out.density <= 1.0))
      return misbehaved(who_, "resolve answered density " + text::format_number(out.density) +
                                  ", which is not in [0, 1]");
    if (out.workspace_bytes > kMaxWorkspaceBytes) return impossible_workspace(out.workspace_bytes);
    return {};
  }

  void fill(const fovea_plugin_report& out, const Problem& problem, const ExecutionContext& context,
            Answer& answer) const {
    ExecutionPathResult& r = answer.report;
    r.support = static_cast<SupportStatus>(out.support);
    r.path = read_text(out.path, r.path);
    // Verified on an accelerator is what a committed record says, not what a plugin claims.
    if (r.support == SupportStatus::supported && context.facts.platform() != PlatformId::cpu) {
      const ValidationRecord* record =
          find_validation_record({r.backend, r.provider, r.path}, context.facts);
      const bool alone = context.parallel_strategy == ParallelStrategy::none &&
                         context.outer_boundaries.empty() && !context.paged_kv;
      if (!alone || record == nullptr || !covers(*record, problem))
        r.support = SupportStatus::unmigrated;
    }
    r.compilation_mode = static_cast<CompilationMode>(out.compilation_mode);
    r.built = true;
    r.lossy = out.lossy != 0;
    if (out.has_density != 0) r.density = out.density;
    r.workspace_bytes = static_cast<size_t>(out.workspace_bytes);
    r.instance = read_text(out.instance, r.instance);
    Receipt& receipt = answer.receipt;
    receipt.backend = r.backend;
    receipt.provider = r.provider;
    receipt.path = r.path;
    receipt.instance = r.instance;
    receipt.compute_qk = read_text(out.compute_qk, "unstated");
    receipt.compute_pv = read_text(out.compute_pv, "unstated");
    receipt.accumulate = read_text(out.accumulate, "unstated");
    receipt.density = r.density;
    receipt.deterministic = out.deterministic != 0;
    receipt.compilation_mode = r.compilation_mode;
  }

  std::shared_ptr<const BackendEntries> entries_;
  std::string path_, who_, provider_;
};

}  // namespace

Result<BackendEntries> read_backend(const fovea_plugin_backend* given, std::string_view who) {
  BackendEntries entries;
  FOVEA_TRY(entries.calls, read_struct(given, offsetof(fovea_plugin_backend, release), who,
                                       "the description of a backend"));
  const fovea_plugin_backend& calls = entries.calls;
  if (calls.abi_major != FOVEA_PLUGIN_ABI_MAJOR)
    return misbehaved(who, text::concat("a backend is written for version ", calls.abi_major, ".",
                                        calls.abi_minor,
                                        " of the plugin interface; this library "
                                        "has ",
                                        FOVEA_PLUGIN_ABI_MAJOR));
  if (calls.name == nullptr) return misbehaved(who, "the name of a backend is NULL");
  entries.name = read_text(calls.name);
  if (entries.name.empty() ||
      !std::all_of(entries.name.begin(), entries.name.end(), name_character))
    return misbehaved(who, "the backend's name " + text::quote(entries.name) +
                               " is not made of letters, digits, '_', '-' and '.'");
  entries.backend_name = read_text(calls.backend_name);
  FOVEA_TRY(entries.options, read_options(calls, entries.name, who));
  if (!entries.options.empty() && entries.backend_name.empty())
    return misbehaved(who, "backend " + entries.name + " has options but declares no backend_name");
  const std::pair<const char*, bool> required[] = {{"resolve", calls.resolve != nullptr},
                                                   {"plan", calls.plan != nullptr},
                                                   {"run", calls.run != nullptr}};
  for (const auto& [entry, given_here] : required)
    if (!given_here)
      return misbehaved(who, "backend " + entries.name + " lacks the entry " + entry);
  return entries;
}

std::shared_ptr<const Backend> make_backend(BackendEntries entries, std::string path,
                                            std::string provider) {
  return std::make_shared<PluginBackend>(std::move(entries), std::move(path), std::move(provider));
}

}  // namespace fovea::plugin
