// fovea: the command line program. Result on standard output, log on standard error.
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "fovea/log.hpp"
#include "fovea/plugin_loader.hpp"
#include "fovea/version.hpp"
#include "src/core/text.hpp"
#include "tools/fovea/json.hpp"
#include "tools/fovea/verb.hpp"

namespace fovea::cli {

namespace {

constexpr std::array<VerbInfo, 9> kVerbs = {{
    {"run", "Run attention on tensors from a safetensors file",
     "  fovea run --input examples/data/wan_t2v_attention.safetensors --prefix tap.attn.0. "
     "--expect out\n",
     make_run, true},
    {"check", "Compare a backend with the float64 oracle on random inputs",
     "  fovea check --problem 'f32 b1 h4 s300 d64 mask=causal lse=1 seed=7'\n", make_check, true},
    {"bench", "Measure a backend, with baselines in the same run",
     "  fovea bench --problem 'f32 b1 h2 s512 d64' --repeat 3\n", make_bench, true},
    {"explain", "Say which backend each layer role would use, and why",
     "  fovea explain --backend FLASH_ATTN --model wan2.1-t2v-14b --device h200\n", make_explain,
     true},
    {"backends", "List every backend and whether it can run here",
     "  fovea backends --device h100 --problem 'bf16 b1 h24 s4096 d128'\n", make_backends, false},
    {"devices", "Describe this machine; --presets lists named devices and models",
     "  fovea devices --presets\n", make_devices, false},
    {"mask", "Show which blocks of keys a sparse pattern reads",
     "  fovea mask radial --frames 8 --tokens-per-frame 256 --block 64\n"
     "  fovea mask local --frames 4 --tokens-per-frame 512 --window 3\n",
     make_mask, false, true},
    {"config", "Print or check a configuration",
     "  fovea config print --config '{\"per_role\": {\"cross\": \"SDPA\"}}'\n", make_config, true},
    {"version", "Print the version and how this binary was built", "  fovea version\n",
     make_version, false},
}};

std::string overview() {
  std::string out =
      "fovea: an attention runtime for diffusion transformers\n"
      "\n"
      "Usage: fovea VERB [options]\n"
      "\n"
      "Verbs:\n";
  for (const VerbInfo& verb : kVerbs) {
    out +=
        text::concat("  ", verb.name, std::string(10 - verb.name.size(), ' '), verb.summary, "\n");
  }
  out +=
      "\n"
      "Every verb takes --format table|json|csv and --log-level debug|info|warning|error|off, and\n"
      "'fovea VERB --help' lists the rest with an example.\n"
      "\n"
      "Exit codes: 0 ok, 1 a comparison failed, 2 usage, configuration, file or tensor error,\n"
      "3 unsupported, 4 device, resource or communication error, 5 internal error.\n"
      "\n"
      "Example:\n"
      "  fovea explain --backend FLASH_ATTN --model wan2.1-t2v-14b --device h200\n";
  return out;
}

Error usage_error(std::string message) {
  return {.code = ErrorCode::invalid_argument, .message = std::move(message), .reasons = {}};
}

// The format asked for, before the flags are parsed: errors in them are printed in it too.
Format early_format(const std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--format=json") return Format::json;
    if (arguments[i] == "--format" && i + 1 < arguments.size() && arguments[i + 1] == "json") {
      return Format::json;
    }
  }
  return Format::table;
}

Result<ExitCode> dispatch(const Terminal& terminal, std::vector<std::string> arguments) {
  if (arguments.empty()) return usage_error("fovea: no verb given; see 'fovea --help'");
  const std::string name = arguments.front();
  arguments.erase(arguments.begin());
  if (name == "--help" || name == "-h" || name == "help") {
    terminal.write(overview());
    return kOk;
  }
  const VerbInfo* info = nullptr;
  std::vector<std::string_view> names;
  for (const VerbInfo& verb : kVerbs) {
    names.push_back(verb.name);
    if (verb.name == (name == "--version" ? "version" : name)) info = &verb;
  }
  if (info == nullptr) {
    return usage_error(text::concat("fovea: unknown verb ", text::quote(name), " (accepted: ",
                                    text::join(names), ")", text::suggestion(name, names)));
  }

  Invocation invocation{terminal, Format::table, {}};
  FOVEA_TRY(invocation.config_flags, take_config_flags(arguments));
  if (!info->takes_config && !invocation.config_flags.empty()) {
    return usage_error(text::concat("fovea ", name, " takes no configuration, so --config.",
                                    invocation.config_flags.front().path, " has no place here"));
  }
  Flags flags(info->name, info->summary, info->example);
  const std::unique_ptr<Verb> verb = info->make();
  std::string format = "table";
  std::optional<std::string> level;
  verb->declare(flags);
  if (info->drawn) {
    format = "text";
    flags.add("--format", "text|json|csv", &format, "How the result is printed (text)");
  } else {
    flags.add("--format", "table|json|csv", &format, "How the result is printed (table)");
  }
  flags.add("--log-level", "LEVEL", &level, "debug, info, warning, error or off (FOVEA_LOG)");
  FOVEA_CHECK(flags.parse(arguments));
  if (flags.help_requested()) {
    terminal.write(flags.help());
    return kOk;
  }
  FOVEA_TRY(invocation.format, parse_format(format, info->drawn));
  if (level) {
    const std::optional<LogLevel> parsed = parse_log_level(*level);
    if (!parsed) {
      return usage_error("--log-level " + text::quote(*level) +
                         " is not a level (accepted: debug, info, warning, error, off)");
    }
    set_log_level(*parsed);
  }
  load_plugins_from_environment();  // failures are logged
  return verb->execute(invocation);
}

}  // namespace

int program(const std::vector<std::string>& arguments) {
  const Terminal terminal;
  const Result<ExitCode> result = dispatch(terminal, arguments);
  if (result) return *result;
  terminal.end_progress();
  const Error& error = result.error();
  std::fprintf(stderr, "error: %s\n", error.message.c_str());
  if (early_format(arguments) == Format::json) terminal.write(error_json(error));
  return exit_code(error.code);
}

}  // namespace fovea::cli

int main(int argc, char** argv) {
  return fovea::cli::program(std::vector<std::string>(argv + std::min(argc, 1), argv + argc));
}
