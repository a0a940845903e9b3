// What is kept of a validation run: the files of docs/validation.
#pragma once

#include <string>

#include "tools/fovea/contract_check.hpp"
#include "tools/fovea/terminal.hpp"

namespace fovea::cli {

// fovea.validation/1, docs/validation/README.md.
std::string contract_record(const ContractRun& run);
// One row per case.
Table contract_table(const ContractRun& run);
// What passed, and what is missing for a record that counts.
std::string contract_summary(const ContractRun& run);

// Whether the file can be a record's, before the run that it is for. Error invalid_file: no such
// folder, or a folder itself.
Status check_record_file(const std::string& file);

// Error invalid_file.
Status write_record(const std::string& file, const std::string& record);

}  // namespace fovea::cli
