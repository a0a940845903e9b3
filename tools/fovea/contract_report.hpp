// How a validation run is printed and its record written.
#pragma once

#include <string>

#include "src/validation/contract.hpp"
#include "tools/fovea/terminal.hpp"

namespace fovea::cli {

// One row per case.
Table contract_table(const validation::ContractRun& run);
// What passed on each path, and what its record does not cover.
std::string contract_summary(const validation::ContractRun& run);

// Whether the file can be a record's, before the run that it is for. Error invalid_file: no such
// folder, or a folder itself.
Status check_record_file(const std::string& file);

// Error invalid_file.
Status write_record(const std::string& file, const std::string& record);

}  // namespace fovea::cli
