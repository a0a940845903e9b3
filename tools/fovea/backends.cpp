// fovea backends: every name, where it exists, and whether it can run here.
#include <algorithm>

#include "fovea/explain.hpp"
#include "fovea/option_fields.hpp"
#include "fovea/registry.hpp"
#include "src/core/text.hpp"
#include "tools/fovea/arguments.hpp"
#include "tools/fovea/json.hpp"
#include "tools/fovea/verb.hpp"

namespace fovea::cli {

namespace {

// Why the name cannot be used, or, where only the problem is known to fit, what is still missing.
std::string why_not(const BackendReport& row) {
  return row.report.reasons.empty() ? row.availability.cause : sentence(row.report.reasons);
}

// What the policy says, and whether this binary holds the kernel that would run.
Availability availability_of(const BackendReport& row, const Platform& platform) {
  Availability result = current_availability(row.backend, platform);
  const bool runs = result.state == Availability::State::available &&
                    row.report.support != SupportStatus::unsupported;
  if (runs && !row.report.built) {
    result.state = Availability::State::not_built;
    result.cause = "this binary lacks the kernel; rebuild with ./dev build --cuda auto";
  }
  return result;
}

Table table_of(const BackendsReport& report) {
  Table table{{"backend", "availability", "support", "built", "provider", "path", "platforms",
               "why not", "install"},
              {}};
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
                          std::string(name(row.availability.state)),
                          {std::string(name(support)), colour},
                          row.report.built ? "yes" : "no",
                          dash(row.report.provider),
                          dash(row.report.path),
                          dash(text::join(platforms, " ")),
                          why_not(row),
                          row.availability.install});
  }
  return table;
}

// What the answers take for granted, a line for each name.
std::string granted(const BackendsReport& report) {
  std::string lines;
  for (const BackendReport& row : report.backends) {
    if (row.assumed.empty()) continue;
    lines += text::concat(lines.empty() ? "\n" : "", name(row.backend),
                          " takes for granted: ", sentence(row.assumed), "\n");
  }
  return lines;
}

// One line for each field of each option block, with the names it belongs to.
Table options_table(const std::vector<OptionBlockInfo>& blocks) {
  Table table{{"block", "field", "type", "accepted", "default", "owners", "help"}, {}};
  for (const OptionBlockInfo& block : blocks) {
    for (const OptionFieldInfo& field : block.fields) {
      std::vector<std::string> owners;
      for (const BackendName owner : field.owners.empty() ? block.owners : field.owners) {
        owners.push_back(name(owner));
      }
      table.rows.push_back(
          {block.name.empty() ? "(entry)" : block.name, field.name, std::string(name(field.type)),
           field.accepted, field.default_value.empty() ? "-" : field.default_value,
           owners.empty() ? "every backend" : text::join(owners, " "), field.summary});
    }
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
    flags.add("--backend", "NAME", &backend_, "Only this name");
    flags.add("--options", "", &options_, "The option blocks and the backends they belong to");
  }

  Result<ExitCode> execute(const Invocation& invocation) override {
    std::vector<BackendName> names = all_backends();
    if (backend_) {
      FOVEA_TRY(const BackendName only, parse_backend(*backend_));
      names = {only};
    }
    if (options_) return print_options(invocation);
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
    for (const BackendName backend : names) {
      AttentionConfig config;
      config.default_spec.emplace().backend = backend;
      Explanation explanation = explain(config, platform, {query}, context);
      BackendReport row;
      row.backend = backend;
      row.platforms = platforms_of(backend);
      row.report = std::move(explanation.entries.front().report);
      row.assumed = std::move(explanation.entries.front().assumed);
      row.availability = availability_of(row, *platform);
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
        terminal.write(report.facts.text() + "\n\n" + terminal.aligned(table_of(report)) +
                       granted(report));
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

  // The blocks that a backend may be given, all of them without --backend.
  Result<ExitCode> print_options(const Invocation& invocation) const {
    if (facts_.device || facts_.platform || facts_.facts || problem_ || dtype_ || head_dim_ ||
        mask_free_) {
      return Error{ErrorCode::invalid_argument,
                   "--options is the same on every device; only --backend goes with it",
                   {}};
    }
    std::vector<OptionBlockInfo> blocks = option_blocks();
    if (backend_) {
      FOVEA_TRY(const BackendName only, parse_backend(*backend_));
      const auto foreign = [&](const std::vector<BackendName>& owners) {
        return !owners.empty() && std::find(owners.begin(), owners.end(), only) == owners.end();
      };
      std::erase_if(blocks, [&](const OptionBlockInfo& block) { return foreign(block.owners); });
      for (OptionBlockInfo& block : blocks) {
        std::erase_if(block.fields,
                      [&](const OptionFieldInfo& field) { return foreign(field.owners); });
      }
    }
    const Terminal& terminal = invocation.terminal;
    switch (invocation.format) {
      case Format::json:
        terminal.write(options_json(blocks));
        break;
      case Format::csv:
        terminal.write(to_csv(options_table(blocks)));
        break;
      case Format::table:
        terminal.write(terminal.aligned(options_table(blocks)));
        break;
    }
    return kOk;
  }

  FactsArguments facts_;
  std::optional<std::string> problem_, dtype_, backend_;
  std::optional<int64_t> head_dim_;
  bool mask_free_ = false;
  bool options_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_backends() { return std::make_unique<BackendsVerb>(); }

}  // namespace fovea::cli
