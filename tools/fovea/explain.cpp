// fovea explain: which backend each role would use, and the trail that led there.
#include "fovea/explain.hpp"

#include <set>

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

std::string text_or_dash(std::string_view text) { return text.empty() ? "-" : std::string(text); }

Table entries_table(const Explanation& explanation,
                    const std::vector<std::optional<Problem>>& problems) {
  Table table{{"role", "category", "layers", "steps", "backend", "support", "built", "provider",
               "path", "strictness", "source", "problem"},
              {}};
  for (size_t i = 0; i < explanation.entries.size(); ++i) {
    const ExplainEntry& entry = explanation.entries[i];
    const ExecutionPathResult& report = entry.report;
    table.rows.push_back(
        {entry.role, text_or_dash(entry.category), entry.layers, entry.steps, name(report.backend),
         {std::string(name(report.support)), colour_of(report.support)},
         report.built ? "yes" : "no", text_or_dash(report.provider), text_or_dash(report.path),
         entry.strictness ? std::string(name(*entry.strictness)) : "-", entry.source,
         i < problems.size() && problems[i] ? to_string(*problems[i]) : "-"});
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
    const Explanation explanation =
        explain(config, make_platform(std::move(judged.facts)), queries, context);
    std::vector<std::optional<Problem>> problems;
    for (const ExplainQuery& query : queries) problems.push_back(query.problem);
    const Terminal& terminal = invocation.terminal;
    switch (invocation.format) {
      case Format::json:
        terminal.write(explain_json(explanation, problems));
        break;
      case Format::csv:
        terminal.write(to_csv(entries_table(explanation, problems)));
        break;
      case Format::table:
        terminal.write(explanation.facts.text() + "\n\n" +
                       terminal.aligned(entries_table(explanation, problems)) +
                       trails(explanation, terminal));
        break;
    }
    return explanation.refused ? kUnsupported : kOk;
  }

 private:
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
