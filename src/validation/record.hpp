// What is kept of a validation run: the files of docs/validation.
#pragma once

#include <map>
#include <string>

#include "src/validation/contract.hpp"

namespace fovea::validation {

// fovea.validation/1, docs/validation/README.md. `host`: versions of the host program's software,
// by name.
std::string record_text(const ContractRun& run,
                        const std::map<std::string, std::string>& host = {});

}  // namespace fovea::validation
