// Tables of run and check.
#pragma once

#include <string>
#include <vector>

#include "tools/fovea/reports.hpp"
#include "tools/fovea/terminal.hpp"

namespace fovea::cli {

// Everything of one run, a line each.
Fields run_fields(const RunReport& report);
// One row per report, for comma-separated output.
Table run_table(const std::vector<RunReport>& reports);
// One row per report with the error figures only.
Table check_table(const std::vector<RunReport>& reports);
// What sparse paths keep of dense attention, one row for each report that says so.
Table quality_table(const std::vector<RunReport>& reports);
// "FLASH_ATTN by fovea, cpu.avx2 f32, on cpu".
std::string receipt_line(const Receipt& receipt);

}  // namespace fovea::cli
