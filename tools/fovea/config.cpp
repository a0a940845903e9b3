// fovea config print|check: what a configuration says after normalisation.
#include "fovea/config.hpp"

#include "src/core/text.hpp"
#include "tools/fovea/arguments.hpp"
#include "tools/fovea/json.hpp"
#include "tools/fovea/verb.hpp"

namespace fovea::cli {

namespace {

Table entries_table(const AttentionConfig& config) {
  Table table{{"entry", "backend", "strictness", "spec"}, {}};
  const auto add = [&](const std::string& entry, const AttentionSpec& spec) {
    table.rows.push_back(
        {entry, name(spec.backend), std::string(name(spec.strictness)), to_json(spec)});
  };
  if (config.default_spec) add("default", *config.default_spec);
  for (const auto& [role, spec] : config.per_role) add("per_role." + role, spec);
  return table;
}

class ConfigVerb : public Verb {
 public:
  void declare(Flags& flags) override {
    flags.add("ACTION", "print|check", &action_, "print: the normalised form; check: only errors");
    arguments_.declare(flags);
    schedule_.declare(flags);
  }

  Result<ExitCode> execute(const Invocation& invocation) override {
    if (action_ != "print" && action_ != "check") {
      const std::string got = action_.empty() ? "nothing" : text::quote(action_);
      return Error{ErrorCode::invalid_argument,
                   "fovea config needs an action (accepted: print, check), not " + got,
                   {}};
    }
    FOVEA_TRY(const AttentionConfig config, arguments_.build(invocation.config_flags));
    FOVEA_TRY(const std::optional<AttentionSchedule> schedule, schedule_.build());
    const std::string schedule_json = schedule ? to_json(*schedule) : "null";
    const Terminal& terminal = invocation.terminal;
    const size_t count = config.per_role.size() + (config.default_spec ? 1 : 0);
    switch (invocation.format) {
      case Format::json:
        terminal.write(object_json({{"schema", text_json("fovea.config/1")},
                                    {"valid", "true"},
                                    {"entries", std::to_string(count)},
                                    {"config", to_json(config)},
                                    {"schedule", schedule_json}}));
        break;
      case Format::csv:
        terminal.write(to_csv(entries_table(config)));
        break;
      case Format::table:
        if (action_ == "check") {
          terminal.write(text::concat("valid: ", count, count == 1 ? " entry" : " entries",
                                      schedule ? ", and a schedule\n" : "\n"));
        } else {
          terminal.write(pretty_json(to_json(config)));
          if (schedule) terminal.write(pretty_json(schedule_json));
        }
        break;
    }
    return kOk;
  }

 private:
  std::string action_;
  ConfigArguments arguments_;
  ScheduleArguments schedule_;
};

}  // namespace

std::unique_ptr<Verb> make_config() { return std::make_unique<ConfigVerb>(); }

}  // namespace fovea::cli
