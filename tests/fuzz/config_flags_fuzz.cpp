// Lines as sources of a configuration: "@ NAME" the shorthand, "$ NAME" the environment, "{..." the
// text, "PATH VALUE" a flag.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "fovea/config.hpp"
#include "src/core/text.hpp"

using namespace fovea;

namespace {

void expect(bool truth) {
  if (!truth) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  ConfigSources sources;
  for (const std::string_view line : text::split(input, '\n')) {
    if (line.empty()) continue;
    if (line.front() == '@') {
      sources.backend = line.substr(1);
    } else if (line.front() == '$') {
      sources.environment = std::string(line.substr(1));
    } else if (line.front() == '{') {
      sources.text = line;
    } else {
      const size_t blank = line.find(' ');
      const bool value = blank != std::string_view::npos;
      sources.flags.push_back({std::string(line.substr(0, blank)),
                               value ? std::string(line.substr(blank + 1)) : std::string()});
    }
  }
  const auto config = build_config(sources);
  if (!config) {
    expect(config.error().code == ErrorCode::invalid_config);
    expect(text::valid_utf8(config.error().message));
    return 0;
  }
  auto again = parse_config(to_json(*config));
  // A document does not say where its default came from.
  if (again) again->default_from_environment = config->default_from_environment;
  expect(again.has_value());
  expect(again && *again == *config);
  // A flag beats every other source.
  const bool flagged = !sources.flags.empty() && sources.flags.back().path == "default.backend";
  if (flagged && config->default_spec) {
    const auto named = parse_backend(sources.flags.back().value);
    expect(!named || *named == config->default_spec->backend);
  }
  return 0;
}
