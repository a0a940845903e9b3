// fovea backends: every name, where it exists, and whether it can run here.
#include "fovea/explain.hpp"
#include "src/core/text.hpp"
#include "tools/fovea/arguments.hpp"
#include "tools/fovea/json.hpp"
#include "tools/fovea/verb.hpp"

namespace fovea::cli {

namespace {

Table table_of(const BackendsReport& report) {
  Table table{{"backend", "support", "built", "provider", "path", "platforms", "why not"}, {}};
  for (const BackendReport& row : report.backends) {
    std::vector<std::string_view> platforms;
    for (const PlatformId id : row.platforms) platforms.push_back(name(id));
    const SupportStatus support = row.report.support;
    const Colour colour = support == SupportStatus::supported    ? Colour::good
                          : support == SupportStatus::unmigrated ? Colour::warn
                                                                 : Colour::bad;
    const auto dash = [](std::string_view text) {
      return text.empty() ? std::string("-") : std::string(text);
    };
    table.rows.push_back({name(row.backend),
                          {std::string(name(support)), colour},
                          row.report.built ? "yes" : "no",
                          dash(row.report.provider),
                          dash(row.report.path),
                          dash(text::join(platforms, " ")),
                          sentence(row.report.reasons)});
  }
  return table;
}

class BackendsVerb : public Verb {
 public:
  void declare(Flags& flags) override {
    facts_.declare(flags);
    flags.add("--problem", "S", &problem_, "Judge for this problem string (a plain dense call)");
    flags.add("--dtype", "NAME", &dtype_, "f32, f16 or bf16, without --problem");
    flags.add("--head-dim,--head-size", "N", &head_dim_, "Head size, without --problem");
    flags.add("--mask-free", "", &mask_free_, "The model passes no mask");
  }

  Result<ExitCode> execute(const Invocation& invocation) override {
    FOVEA_TRY(FactsArguments::Judged judged, facts_.read());
    FOVEA_TRY(const ExplainQuery query, make_query());
    ExecutionContext context;
    context.facts = judged.facts;
    context.local = judged.local;
    context.device = judged.where;
    BackendsReport report;
    report.facts = judged.facts;
    if (problem_) report.problem = query.problem;
    const std::shared_ptr<const Platform> platform = make_platform(std::move(judged.facts));
    for (const BackendName backend : all_backends()) {
      AttentionConfig config;
      config.default_spec.emplace().backend = backend;
      Explanation explanation = explain(config, platform, {query}, context);
      BackendReport row;
      row.backend = backend;
      row.platforms = platforms_of(backend);
      row.report = std::move(explanation.entries.front().report);
      row.availability = availability(backend, *platform);
      report.backends.push_back(std::move(row));
    }
    const Terminal& terminal = invocation.terminal;
    switch (invocation.format) {
      case Format::json:
        terminal.write(backends_json(report));
        break;
      case Format::csv:
        terminal.write(to_csv(table_of(report)));
        break;
      case Format::table:
        terminal.write(report.facts.text() + "\n\n" + terminal.aligned(table_of(report)));
        break;
    }
    return kOk;
  }

 private:
  Result<ExplainQuery> make_query() const {
    ExplainQuery query;
    query.policy.mask_free = mask_free_;
    if (head_dim_) FOVEA_CHECK(at_least("--head-dim", *head_dim_, 1));
    query.policy.head_dim = head_dim_.value_or(0);
    if (problem_ && (dtype_ || head_dim_)) {
      return Error{ErrorCode::invalid_argument,
                   "--problem states the type and the head size; leave --dtype and --head-dim out",
                   {}};
    }
    if (problem_) {
      FOVEA_TRY(query.problem, parse_problem(*problem_));
    } else if (dtype_) {
      FOVEA_TRY(const DType dtype, parse_input_dtype(*dtype_));
      query.problem = plain_problem(dtype, head_dim_);
    }
    return query;
  }

  FactsArguments facts_;
  std::optional<std::string> problem_, dtype_;
  std::optional<int64_t> head_dim_;
  bool mask_free_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_backends() { return std::make_unique<BackendsVerb>(); }

}  // namespace fovea::cli
