#include "tools/fovea/flags.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <type_traits>
#include <utility>

#include "src/core/text.hpp"

namespace fovea::cli {

namespace {

constexpr std::string_view kConfigPrefix = "--config.";
constexpr size_t kHelpColumn = 34;

Error usage_error(std::string message) {
  return {.code = ErrorCode::invalid_argument, .message = std::move(message), .reasons = {}};
}

Error wrong_value(const std::string& flag, std::string_view accepted, const std::string& got) {
  return usage_error(text::concat(flag, " needs ", accepted, ", not ", text::quote(got)));
}

Status store(const Target& target, const std::string& flag, const std::vector<std::string>& words) {
  return std::visit(
      [&](auto* to) -> Status {
        using T = std::remove_pointer_t<decltype(to)>;
        if constexpr (std::is_same_v<T, bool>) {
          *to = true;
        } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
          *to = words;
        } else if constexpr (std::is_same_v<T, int64_t> ||
                             std::is_same_v<T, std::optional<int64_t>>) {
          const std::optional<int64_t> number = text::parse_integer(words.front());
          if (!number) return wrong_value(flag, "a whole number", words.front());
          *to = *number;
        } else if constexpr (std::is_same_v<T, std::optional<double>>) {
          const std::optional<double> number = text::parse_number(words.front());
          if (!number) return wrong_value(flag, "a number", words.front());
          *to = *number;
        } else {
          *to = words.front();
        }
        return {};
      },
      target);
}

// "--flag=value" as two words, because the library takes "--flag=" for a missing value.
std::vector<std::string> split_values(const std::vector<std::string>& arguments) {
  std::vector<std::string> words;
  for (const std::string& word : arguments) {
    const size_t equals = word.find('=');
    if (!word.starts_with("--") || equals == std::string::npos) {
      words.push_back(word);
      continue;
    }
    words.push_back(word.substr(0, equals));
    words.push_back(word.substr(equals + 1));
  }
  return words;
}

}  // namespace

struct Flags::State {
  struct Declared {
    CLI::Option* option;
    std::string name;
    Target target;
    std::vector<std::string> words;
  };

  std::string verb;
  CLI::App app;
  std::vector<std::unique_ptr<Declared>> declared;
  bool help = false;

  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const CLI::Option* option : app.get_options()) {
      for (const std::string& name : option->get_lnames()) all.push_back("--" + name);
    }
    return all;
  }

  std::string hint() const { return "; see 'fovea " + verb + " --help'"; }
};

Flags::Flags(std::string_view verb, std::string_view summary, std::string_view example)
    : state_(std::make_unique<State>()) {
  state_->verb = verb;
  CLI::App& app = state_->app;
  app.description(std::string(summary));
  app.name("fovea " + state_->verb);
  app.footer("Example:\n" + std::string(example));
  app.get_formatter()->column_width(kHelpColumn);
  app.get_formatter()->label("OPTIONS", "options");
  app.get_formatter()->label("TEXT", "");
  app.set_help_flag();
  app.add_flag("--help,-h", state_->help, "This text");
  app.allow_extras();
}

Flags::~Flags() = default;

void Flags::add(const std::string& names, const std::string& value, Target target,
                const std::string& help) {
  auto declared = std::make_unique<State::Declared>();
  declared->name = names.substr(0, names.find(','));
  declared->target = target;
  if (std::holds_alternative<bool*>(target)) {
    declared->option = state_->app.add_flag(names, help);
  } else {
    declared->option = state_->app.add_option(names, declared->words, help)
                           ->expected(1)
                           ->take_all()
                           ->type_name(value);
  }
  state_->declared.push_back(std::move(declared));
}

Status Flags::parse(const std::vector<std::string>& arguments) {
  const std::string who = "fovea " + state_->verb + ": ";
  try {
    std::vector<std::string> words = split_values(arguments);
    std::reverse(words.begin(), words.end());
    state_->app.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    return usage_error(who + error.what() + state_->hint());
  }
  if (state_->help) return {};
  for (const std::string& extra : state_->app.remaining()) {
    const std::string word = extra.substr(0, extra.find('='));
    if (!word.starts_with("-")) {
      return usage_error(who + "unexpected argument " + text::quote(extra) + state_->hint());
    }
    return usage_error(who + "unknown option " + text::quote(word) + state_->hint() +
                       text::suggestion(word, state_->names()));
  }
  for (const auto& declared : state_->declared) {
    if (declared->option->count() == 0) continue;
    const bool repeatable = std::holds_alternative<std::vector<std::string>*>(declared->target);
    if (!repeatable && declared->option->count() > 1) {
      return usage_error(who + declared->name + " is given more than once");
    }
    if (Status stored = store(declared->target, who + declared->name, declared->words); !stored) {
      return std::move(stored).error();
    }
  }
  return {};
}

bool Flags::help_requested() const noexcept { return state_->help; }

std::string Flags::help() const { return state_->app.help(); }

Result<std::vector<ConfigFlag>> take_config_flags(std::vector<std::string>& arguments) {
  std::vector<ConfigFlag> flags;
  std::vector<std::string> rest;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (!word.starts_with(kConfigPrefix)) {
      rest.push_back(word);
      continue;
    }
    const size_t equals = word.find('=');
    ConfigFlag flag;
    if (equals != std::string::npos) {
      flag.path = word.substr(kConfigPrefix.size(), equals - kConfigPrefix.size());
      flag.value = word.substr(equals + 1);
    } else if (i + 1 < arguments.size()) {
      flag.path = word.substr(kConfigPrefix.size());
      flag.value = arguments[++i];
    } else {
      return usage_error(word + " needs a value, as in " + word + " FLASH_ATTN");
    }
    flags.push_back(std::move(flag));
  }
  arguments = std::move(rest);
  return flags;
}

}  // namespace fovea::cli
