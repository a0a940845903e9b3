// fovea explain: which backend each role would use, and the trail that led there.
#include "fovea/explain.hpp"

#include "fovea/model_preset.hpp"
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

Table entries_table(const Explanation& explanation) {
  Table table{{"role", "category", "layers", "steps", "backend", "support", "built", "provider",
               "path", "strictness", "source", "problem"},
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
                          entry.strictness ? std::string(name(*entry.strictness)) : "-",
                          entry.source,
                          entry.problem ? to_string(*entry.problem) : "-"});
  }
  return table;
}

// What was passed over and why, one line for each.
std::string trails(const Explanation& explanation, const Terminal& terminal) {
  std::string out;
  for (const ExplainEntry& entry : explanation.entries) {
    for (const TrailEntry& step : entry.trail) {
      if (step.verdict != TrailVerdict::rejected) continue;
      out += text::concat(entry.role, ": ", terminal.coloured(name(step.backend), Colour::strong),
                          " rejected: ", sentence(step.reasons), "\n");
    }
  }
  return out.empty() ? out : "\n" + out;
}

// "0-39" for forty.
std::string range(int64_t count) { return text::concat("0-", count - 1); }

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

Problem problem_of(const ModelRole& role, DType dtype) {
  Problem problem;
  problem.dtype = problem.out_dtype = dtype;
  problem.heads_q = problem.heads_kv = role.heads;
  problem.head_dim = problem.dim_v = role.head_dim;
  problem.seq_q = role.seq_q;
  problem.seq_kv = role.seq_kv;
  problem.mask.kind = role.mask;
  fill_strides(problem);
  return problem;
}

class ExplainVerb : public Verb {
 public:
  void declare(Flags& flags) override {
    config_.declare(flags);
    facts_.declare(flags);
    flags.add("--model", "PRESET", &model_, "Explain the roles of a model");
    flags.add("--size", "HxW", &size_, "Output size of the model, e.g. 720x1280");
    flags.add("--frames", "N", &frames_, "Video frames of the model");
    flags.add("--problem", "S", &problem_, "Explain for this problem string");
    flags.add("--role", "NAME", &role_, "Only this role (the default and every per_role entry)");
    flags.add("--category", "NAME", &category_, "Category of the role");
    flags.add("--dtype", "NAME", &dtype_, "f32, f16 or bf16, for the roles of a model");
    flags.add("--head-dim,--head-size", "N", &head_dim_, "Judge the policy for this head size");
    flags.add("--mask-free", "", &mask_free_, "The model passes no mask");
    flags.add("--steps", "N", &steps_, "Denoising steps");
    flags.add("--layers", "N", &layers_, "Layers");
  }

  Result<ExitCode> execute(const Invocation& invocation) override {
    FOVEA_TRY(const AttentionConfig config, config_.build(invocation.config_flags));
    FOVEA_TRY(FactsArguments::Judged judged, facts_.read());
    FOVEA_TRY(const std::vector<ExplainQuery> queries, make_queries(config));
    ExecutionContext context;
    context.facts = judged.facts;
    context.local = judged.local;
    context.device = judged.where;
    const Explanation explanation =
        explain(config, make_platform(std::move(judged.facts)), queries, context);
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
  Result<std::vector<ExplainQuery>> make_queries(const AttentionConfig& config) const {
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
    if (steps_) query.steps = range(*steps_);
    if (layers_) query.layers = range(*layers_);
    if (model_) return model_queries(std::move(query), dtype.value_or(kBF16));
    if (size_ || frames_) return usage_error("--size and --frames need --model");
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
    std::vector<ExplainQuery> queries;
    const auto add = [&](const std::string& role) {
      query.role = role;
      queries.push_back(query);
    };
    if (role_) {
      add(*role_);
      return queries;
    }
    add("default");
    for (const auto& [role, spec] : config.per_role) add(role);
    return queries;
  }

  // One query per attention call of the model.
  Result<std::vector<ExplainQuery>> model_queries(ExplainQuery query, DType dtype) const {
    if (problem_ || head_dim_) {
      return usage_error("--model states the problems; leave --problem and --head-dim out");
    }
    ModelSize size;
    if (size_) FOVEA_CHECK(parse_size(*size_, size));
    if (frames_) {
      FOVEA_CHECK(at_least("--frames", *frames_, 1));
      size.frames = *frames_;
    }
    FOVEA_TRY(const ModelDescription model, describe_model(*model_, size));
    query.policy.mask_free = query.policy.mask_free || model.mask_free;
    if (!steps_) query.steps = range(model.steps);
    std::vector<ExplainQuery> queries;
    std::vector<std::string_view> names;
    for (const ModelRole& role : model.roles) {
      names.push_back(role.role);
      if (role_ && *role_ != role.role) continue;
      query.role = role.role;
      if (category_.empty()) query.category = role.category;
      if (!layers_) query.layers = range(role.layers);
      query.problem = problem_of(role, dtype);
      queries.push_back(query);
    }
    if (queries.empty()) {
      return usage_error(text::concat("--role ", text::quote(*role_), " is not a role of ",
                                      model.name, " (it has: ", text::join(names), ")",
                                      text::suggestion(*role_, names)));
    }
    return queries;
  }

  ConfigArguments config_;
  FactsArguments facts_;
  std::optional<std::string> model_, size_, problem_, role_, dtype_;
  std::string category_;
  std::optional<int64_t> frames_, head_dim_, steps_, layers_;
  bool mask_free_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_explain() { return std::make_unique<ExplainVerb>(); }

}  // namespace fovea::cli
