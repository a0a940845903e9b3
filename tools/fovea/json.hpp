// The JSON documents of the command line. Fields are always present: null when unknown, NaN and
// infinities as the strings "nan", "inf" and "-inf".
#pragma once

#include <string>
#include <vector>

#include "tools/fovea/reports.hpp"

namespace fovea::cli {

std::string error_json(const Error& error);
std::string run_json(const RunReport& report);
// One object for one report, an array for several.
std::string check_json(const std::vector<RunReport>& reports);
std::string explain_json(const Explanation& explanation);
std::string backends_json(const BackendsReport& report);
std::string options_json(const std::vector<OptionBlockInfo>& blocks);
std::string bench_json(const BenchReport& report);

// A small object for verbs with a free form: values are JSON text, in order.
using JsonMembers = std::vector<std::pair<std::string, std::string>>;
std::string object_json(const JsonMembers& members);
std::string array_json(const std::vector<std::string>& items);
std::string text_json(std::string_view text);
// The same document with line breaks and indents. `json` must be valid.
std::string pretty_json(std::string_view json);

}  // namespace fovea::cli
