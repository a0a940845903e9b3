// Records that callers bring: read as scripts/check_validation.py reads the committed ones.
#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <utility>

#include "fovea/validation.hpp"
#include "src/config/json_reader.hpp"
#include "src/core/text.hpp"

namespace fovea {
namespace {

using config::Value;

constexpr double kWidestBound = 1e-2;
constexpr size_t kMaxBytes = 6 << 20;
constexpr const char* kTexts[] = {"backend", "provider", "path",  "platform", "device_class",
                                  "device",  "compiler", "fovea", "date"};

std::string text_of(const Value& object, std::string_view key) {
  const Value* found = object.find(key);
  return found != nullptr && found->is_string() ? found->text : std::string();
}

bool is_true(const Value& object, std::string_view key) {
  const Value* found = object.find(key);
  return found != nullptr && found->kind == Value::Kind::boolean && found->boolean;
}

std::optional<double> number_of(const Value& object, std::string_view key) {
  const Value* found = object.find(key);
  if (found == nullptr ||
      (found->kind != Value::Kind::integer && found->kind != Value::Kind::number))
    return std::nullopt;
  return found->number;
}

// What passed on one path, in the order of the run: kinds with their head sizes.
using Passed = std::vector<std::pair<std::string, std::vector<std::string>>>;

void add(Passed& passed, const std::string& kind, std::string heads) {
  auto found = std::find_if(passed.begin(), passed.end(),
                            [&](const auto& each) { return each.first == kind; });
  if (found == passed.end()) found = passed.insert(passed.end(), {kind, {}});
  std::vector<std::string>& list = found->second;
  if (std::find(list.begin(), list.end(), heads) == list.end()) list.push_back(std::move(heads));
}

std::string text_of(const Passed& passed) {
  std::string out;
  for (const auto& [kind, heads] : passed)
    out += text::concat(out.empty() ? "" : ", ", kind, ' ',
                        text::join(std::span<const std::string>(heads), " "));
  return out;
}

// "provider" and "library" as rows have them.
std::pair<std::string, std::string> provider_of(const Value& record) {
  std::string provider = text_of(record, "provider");
  std::string version = text_of(record, "library");
  if (provider == "cudnn" && version.starts_with("cudnn ")) version.erase(0, 6);
  for (const std::string_view prefix : {"package ", "plugin "}) {
    if (!provider.starts_with(prefix)) continue;
    const size_t space = provider.find(' ', prefix.size());
    version = space == std::string::npos ? std::string() : provider.substr(space + 1);
    provider.resize(std::min(space, provider.size()));
  }
  return {std::move(provider), std::move(version)};
}

// Gathers what keeps a record from counting, and what passed on each of its paths.
struct Reading {
  std::vector<std::string> faults;
  std::map<std::string, Passed> paths;

  void head(const Value& record) {
    if (!record.is_object() || text_of(record, "schema") != "fovea.validation/1") {
      faults.emplace_back("is not of schema fovea.validation/1");
      return;
    }
    for (const char* key : kTexts)
      if (text_of(record, key).empty()) faults.push_back(text::concat("lacks ", key));
    for (const char* key : {"atol", "rtol"}) {
      const std::optional<double> bound = number_of(record, key);
      if (!bound || !(*bound > 0 && *bound <= kWidestBound))
        faults.push_back(text::concat("has no ", key, " in (0, 0.01]"));
    }
    if (text_of(record, "platform") != "cpu" && text_of(record, "driver").empty())
      faults.emplace_back("lacks driver");
    if (text_of(record, "provider") != "fovea" && text_of(record, "library").empty())
      faults.emplace_back("lacks library");
    if (text_of(record, "platform") == "cuda" && !is_true(record, "captured"))
      faults.emplace_back("has replayed cases that were not captured");
    if (!is_true(record, "pass")) faults.emplace_back("does not pass");
  }

  void cases(const Value* list) {
    if (list == nullptr || list->kind != Value::Kind::array) {
      faults.emplace_back("has no cases");
      return;
    }
    for (const Value& each : list->items) {
      if (!is_true(each, "ran")) continue;
      const std::string text = text_of(each, "problem");
      if (!is_true(each, "pass") || number_of(each, "outside") != 0.0) {
        faults.push_back(text::concat("has a case that failed: ", text));
        continue;
      }
      const Result<Problem> problem = parse_problem(text);
      if (!problem) {
        faults.push_back(text::concat("has a problem that is none: ", text));
        continue;
      }
      add(paths[text_of(each, "path")], text_of(each, "kind"),
          text::concat(problem->head_dim, '/', problem->dim_v));
    }
  }
};

std::string list_of(const std::vector<std::string>& items) {
  return text::join(std::span<const std::string>(items));
}

}  // namespace

Result<std::shared_ptr<const ValidationFile>> ValidationFile::parse(std::string_view text,
                                                                    std::string name) {
  config::Problems problems;
  const std::string who = "validation record " + text::quote(name);
  FOVEA_TRY(const Value record, config::read_json(text, who, problems));
  Reading reading;
  if (!problems.empty()) reading.faults.emplace_back("has keys twice");
  reading.head(record);
  if (reading.faults.empty()) reading.cases(record.find("cases"));
  auto file = std::make_shared<ValidationFile>();
  const auto keep = [&](std::string value) -> std::string_view {
    return *file->texts_.emplace_back(std::make_unique<const std::string>(std::move(value)));
  };
  const auto [provider, library] = provider_of(record);
  for (const auto& [path, passed] : reading.paths) {
    // What cannot be replayed is not shown to work again.
    const bool replayed = std::any_of(passed.begin(), passed.end(),
                                      [](const auto& each) { return each.first == "replay"; });
    if (!replayed || !can_be_verified(path)) continue;
    file->rows_.push_back({keep(name), keep(text_of(record, "backend")), keep(provider),
                           keep(library), keep(text_of(record, "fovea")), keep(path),
                           keep(text_of(record, "platform")), keep(text_of(record, "device_class")),
                           keep(text_of(record, "date")), keep(text_of(passed))});
  }
  if (reading.faults.empty() && file->rows_.empty())
    reading.faults.emplace_back("has no path with a case of the kind 'replay'");
  if (!reading.faults.empty())
    return Error{
        ErrorCode::invalid_argument, who + " does not count: it " + list_of(reading.faults), {}};
  return std::shared_ptr<const ValidationFile>(std::move(file));
}

Result<std::shared_ptr<const ValidationFile>> ValidationFile::open(const std::string& file) {
  const auto refuse = [&](std::string_view why) {
    return Error{ErrorCode::invalid_file,
                 text::concat("validation record ", text::quote(file), ' ', why),
                 {}};
  };
  std::ifstream stream(file, std::ios::binary);
  std::string text;
  char buffer[1 << 14];
  while (stream.read(buffer, sizeof buffer) || stream.gcount() > 0) {
    text.append(buffer, static_cast<size_t>(stream.gcount()));
    if (text.size() > kMaxBytes) return refuse("is larger than 6 MiB");
  }
  if (!stream.is_open() || stream.bad()) return refuse("cannot be read");
  return parse(text, file);
}

}  // namespace fovea
