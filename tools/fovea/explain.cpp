// fovea explain: which backend each role would use, and the trail that led there.
#include "fovea/explain.hpp"

#include <algorithm>

#include "fovea/model_preset.hpp"
#include "fovea/validation.hpp"
#include "src/core/text.hpp"
#include "tools/fovea/arguments.hpp"
#include "tools/fovea/json.hpp"
#include "tools/fovea/verb.hpp"

namespace fovea::cli {

namespace {

Colour colour_of(SupportStatus support) {
  switch (support) {
    case SupportStatus::supported:
      return Colour::good;
    case SupportStatus::unmigrated:
      return Colour::warn;
    case SupportStatus::unsupported:
      break;
  }
  return Colour::bad;
}

Error usage_error(std::string message) {
  return {.code = ErrorCode::invalid_argument, .message = std::move(message), .reasons = {}};
}

std::string text_or_dash(std::string_view text) { return text.empty() ? "-" : std::string(text); }

// Where the entry comes from, and why a sparse one is dense.
std::string source_of(const ExplainEntry& entry) {
  return entry.dense ? text::concat(entry.source, " (dense: ", name(*entry.dense), ")")
                     : entry.source;
}

Table entries_table(const Explanation& explanation) {
  Table table{{"role", "category", "layers", "steps", "backend", "support", "built", "provider",
               "path", "density", "workspace", "strictness", "source", "problem"},
              {}};
  for (const ExplainEntry& entry : explanation.entries) {
    const ExecutionPathResult& report = entry.report;
    table.rows.push_back({entry.role,
                          text_or_dash(entry.category),
                          entry.layers,
                          entry.steps,
                          name(report.backend),
                          {std::string(name(report.support)), colour_of(report.support)},
                          report.built ? "yes" : "no",
                          text_or_dash(report.provider),
                          text_or_dash(report.path),
                          report.density ? fixed(*report.density, 3) : "-",
                          byte_count(report.workspace_bytes),
                          entry.strictness ? std::string(name(*entry.strictness)) : "-",
                          source_of(entry),
                          entry.problem ? to_string(*entry.problem) : "-"});
  }
  return table;
}

// The threshold below which key tiles are skipped, and when they are not.
std::string skip_line(const ExplainEntry& entry) {
  const SkipDecision& skip = *entry.skip;
  std::string line = text::concat("skip_softmax ", name(skip.state));
  if (!entry.skip_ignored_by.empty())
    line += text::concat(" (pattern ", text::quote(entry.skip_ignored_by), ")");
  if (skip.factor) line += text::concat(", factor ", text::format_number(*skip.factor));
  if (skip.threshold) line += text::concat(", threshold ", text::format_number(*skip.threshold));
  if (skip.factor && !skip.threshold) line += " divided by the number of keys";
  const double gate = entry.spec->skip_softmax->disabled_until_timestep;
  if (skip.state == SkipState::gated)
    line = text::concat("skip_softmax gated in steps ", entry.steps);
  if (gate > 0) line += text::concat("; dense above timestep ", text::format_number(gate));
  return line;
}

// What was passed over and why, what is not verified, and how much of a run is sparse; every line
// once.
std::string trails(const Explanation& explanation, const Terminal& terminal) {
  std::vector<std::string> lines;
  const auto add = [&](std::string line) {
    if (std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(line);
  };
  for (const ExplainEntry& entry : explanation.entries) {
    if (entry.report.support == SupportStatus::unmigrated &&
        validated_by_record(explanation.facts)) {
      const std::vector<Reason>& reasons = entry.report.reasons;
      const std::string cause = reasons.empty() ? entry.report.path : reasons.back().got;
      std::string remedy = reasons.empty() ? std::string() : reasons.back().remedy;
      if (remedy.empty())
        remedy = "validate it with " +
                 validation_command(entry.report.backend, entry.report.provider, explanation.facts);
      add(text::concat(name(entry.report.backend), " runs unverified on ",
                       device_class(explanation.facts), ": ", cause, "; ", remedy));
    }
    const bool refused = entry.report.support == SupportStatus::unsupported;
    if (entry.skip && (!refused || entry.skip->state == SkipState::uncalibrated))
      add(text::concat(entry.role, ": ", skip_line(entry)));
    if (!entry.assumed.empty()) {
      add(text::concat(entry.role, ": ", name(entry.report.backend),
                       " takes for granted: ", sentence(entry.assumed)));
    }
    if (entry.sparse) {
      add(text::concat(entry.role, ": sparse on ", entry.sparse->on, " of ", entry.sparse->of,
                       " steps x layers"));
    }
    for (const TrailEntry& step : entry.trail) {
      if (step.verdict != TrailVerdict::rejected) continue;
      add(text::concat(entry.role, ": ", terminal.coloured(name(step.backend), Colour::strong),
                       " rejected: ", sentence(step.reasons)));
    }
    if (entry.nearest) add(text::concat(entry.role, ": nearest that can: ", name(*entry.nearest)));
  }
  return lines.empty() ? std::string() : text::concat("\n", text::join(lines, "\n"), "\n");
}

// "720x1280".
Status parse_size(const std::string& size, ModelSize& to) {
  const std::vector<std::string_view> sides = text::split(size, 'x');
  const std::optional<int64_t> height = text::parse_integer(sides.front());
  const std::optional<int64_t> width = text::parse_integer(sides.back());
  if (sides.size() != 2 || !height || !width || *height < 1 || *width < 1) {
    return usage_error("--size needs HEIGHTxWIDTH in pixels, e.g. 720x1280, not " +
                       text::quote(size));
  }
  to.height = *height;
  to.width = *width;
  return {};
}

class ExplainVerb : public Verb {
 public:
  void declare(Flags& flags) override {
    config_.declare(flags);
    facts_.declare(flags);
    flags.add("--model", "PRESET|FILE", &model_,
              "Explain the roles of a model: a preset, or one described by a .json file");
    flags.add("--size", "HxW", &size_, "Output size of the model, e.g. 720x1280");
    flags.add("--frames", "N", &frames_, "Video frames of the model");
    flags.add("--problem", "S", &problem_, "Explain for this problem string");
    flags.add("--role", "NAME", &role_, "Only this role (the default and every per_role entry)");
    flags.add("--category", "NAME", &category_, "Category of the role");
    flags.add("--dtype", "NAME", &dtype_, "f32, f16 or bf16, for the roles of a model");
    flags.add("--head-dim,--head-size", "N", &head_dim_, "Judge the policy for this head size");
    flags.add("--mask-free", "", &mask_free_, "The model passes no mask");
    flags.add("--steps", "N", &steps_, "Denoising steps of the run (those of the model)");
    flags.add("--layers", "N", &layers_, "Layers that have the role (those of the model)");
    schedule_.declare(flags);
    calibration_.declare(flags);
    metadata_.declare(flags);
    flags.add("--sigmas", "X,...", &sigmas_,
              "Noise level of every step, for sigma windows and the gate of skip_softmax");
  }

  Result<ExitCode> execute(const Invocation& invocation) override {
    FOVEA_TRY(AttentionConfig config, config_.build(invocation.config_flags));
    FOVEA_TRY(std::optional<AttentionSchedule> schedule, schedule_.build());
    FOVEA_CHECK(calibration_.apply(config, schedule));
    FOVEA_TRY(FactsArguments::Judged judged, facts_.read());
    FOVEA_TRY(Asked asked, make_queries(config));
    if (schedule && asked.lengths.empty()) {
      return usage_error("--schedule needs --steps and --layers, or --model, to be laid out");
    }
    ExecutionContext context;
    context.facts = judged.facts;
    context.local = judged.local;
    context.device = judged.where;
    FOVEA_CHECK(state_metadata(asked, context));
    std::shared_ptr<const Platform> platform = make_platform(std::move(judged.facts));
    Explanation explanation;
    if (asked.lengths.empty()) {
      explanation = explain(config, std::move(platform), asked.queries, context);
    } else {
      FOVEA_TRY(explanation,
                explain_schedule(config, schedule ? &*schedule : nullptr, std::move(platform),
                                 asked.queries, asked.lengths, context));
    }
    const Terminal& terminal = invocation.terminal;
    switch (invocation.format) {
      case Format::json:
        terminal.write(explain_json(explanation));
        break;
      case Format::csv:
        terminal.write(to_csv(entries_table(explanation)));
        break;
      case Format::table:
        terminal.write(explanation.facts.text() + "\n\n" +
                       terminal.aligned(entries_table(explanation)) +
                       trails(explanation, terminal));
        break;
    }
    return explanation.refused ? kUnsupported : kOk;
  }

 private:
  // Queries, and the run of each when its length is known.
  using Asked = ModelRun;

  Result<Asked> make_queries(const AttentionConfig& config) const {
    if (steps_) FOVEA_CHECK(at_least("--steps", *steps_, 1));
    if (layers_) FOVEA_CHECK(at_least("--layers", *layers_, 1));
    if (head_dim_) FOVEA_CHECK(at_least("--head-dim", *head_dim_, 1));
    std::optional<DType> dtype;
    if (dtype_) {
      FOVEA_TRY(dtype, parse_input_dtype(*dtype_));
    }
    ExplainQuery query;
    query.category = category_;
    query.policy.mask_free = mask_free_;
    query.policy.head_dim = head_dim_.value_or(0);
    FOVEA_TRY(const std::vector<double> sigmas, read_sigmas());
    if (model_) return queries_of_model(dtype.value_or(kBF16), sigmas);
    if (size_ || frames_) return usage_error("--size and --frames need --model");
    if (layers_ && !steps_) return usage_error("--layers needs --steps");
    if (!sigmas.empty() && !steps_) return usage_error("--sigmas needs --steps");
    if (problem_) {
      if (dtype || head_dim_) {
        return usage_error(
            "--problem states the type and the head size; leave --dtype and "
            "--head-dim out");
      }
      FOVEA_TRY(query.problem, parse_problem(*problem_));
    } else if (dtype) {
      query.problem = plain_problem(*dtype, head_dim_);
    }
    Asked asked;
    const auto add = [&](const std::string& role) {
      query.role = role;
      asked.queries.push_back(query);
      if (steps_) asked.lengths.push_back({*steps_, layers_, sigmas});
    };
    if (role_) {
      add(*role_);
      return asked;
    }
    add("default");
    for (const auto& [role, spec] : config.per_role) add(role);
    return asked;
  }

  // Puts the normal form of the call that --metadata makes of --problem in its place.
  Status state_metadata(Asked& asked, ExecutionContext& context) const {
    FOVEA_TRY(const std::optional<AttentionMetadata> metadata, metadata_.build());
    if (!metadata) return {};
    if (!problem_) return usage_error("--metadata is about one call; give --problem too");
    for (ExplainQuery& query : asked.queries) {
      FOVEA_TRY(NormalForm form, normalise(*query.problem, *metadata));
      describe_context(form, *metadata, context);
      query.problem = std::move(form.problem);
    }
    return {};
  }

  // One query per attention call of the model.
  Result<Asked> queries_of_model(DType dtype, const std::vector<double>& sigmas) const {
    if (problem_ || head_dim_) {
      return usage_error("--model states the problems; leave --problem and --head-dim out");
    }
    ModelSize size;
    if (size_) FOVEA_CHECK(parse_size(*size_, size));
    if (frames_) {
      FOVEA_CHECK(at_least("--frames", *frames_, 1));
      size.frames = *frames_;
    }
    FOVEA_TRY(const ModelDescription model, read_model(*model_, size));
    Result<ModelRun> run =
        model_queries(model, {role_, category_, dtype, mask_free_, steps_, layers_, sigmas});
    if (run) return run;
    // It begins with the name of a flag.
    return usage_error("--" + run.error().message);
  }

  Result<std::vector<double>> read_sigmas() const {
    std::vector<double> sigmas;
    if (!sigmas_) return sigmas;
    for (const std::string_view word : text::split(*sigmas_, ',')) {
      const std::optional<double> sigma = text::parse_number(text::trim(word));
      if (!sigma) {
        return usage_error(
            text::concat("--sigmas needs numbers separated by commas, not ", text::quote(word)));
      }
      sigmas.push_back(*sigma);
    }
    return sigmas;
  }

  ConfigArguments config_;
  FactsArguments facts_;
  ScheduleArguments schedule_;
  CalibrationArguments calibration_;
  MetadataArguments metadata_;
  std::optional<std::string> model_, size_, problem_, role_, dtype_, sigmas_;
  std::string category_;
  std::optional<int64_t> frames_, head_dim_, steps_, layers_;
  bool mask_free_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_explain() { return std::make_unique<ExplainVerb>(); }

}  // namespace fovea::cli
