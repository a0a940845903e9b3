// Reports as JSON values, shared by the command line and the C interface. Fields are always
// present: null when unknown, NaN and infinities as the strings "nan", "inf" and "-inf".
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "fovea/error.hpp"
#include "fovea/explain.hpp"
#include "fovea/platform.hpp"
#include "fovea/receipt.hpp"

namespace fovea::report {

using Json = nlohmann::ordered_json;

Json number(double value);
Json number(const std::optional<double>& value);
// Empty text is unknown.
Json text(std::string_view text);
Json reasons(const std::vector<Reason>& reasons);
Json receipt(const Receipt& receipt);
Json error(const Error& error);                    // {"error": ...}
Json explanation(const Explanation& explanation);  // fovea.explain/1
Json availability(const Availability& availability);

}  // namespace fovea::report
