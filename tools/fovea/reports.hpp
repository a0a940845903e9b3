// What the verbs found out; json.cpp and the verbs' own tables print it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fovea/fovea.hpp"
#include "src/core/compare.hpp"
#include "tools/fovea/measure.hpp"

namespace fovea::cli {

// One tensor against what it should be. `tolerance` bounds rel_l2, for an lse max_abs.
struct ComparisonReport {
  std::string tensor;
  double max_abs = 0;
  double rel_l1 = 0;
  double rel_l2 = 0;
  double cosine = 1;
  int64_t nonfinite_mismatches = 0;
  double tolerance = 0;
  bool pass = false;
};

ComparisonReport comparison_report(std::string tensor, const Comparison& comparison,
                                   double tolerance, bool pass);

// A sparse result against the dense one on the same tensors.
struct QualityReport {
  double density = 1;     // share of blocks that is kept
  double recall = 1;      // attention mass inside them, mean over the rows
  double recall_min = 1;  // of the worst row
  double rel_l1 = 0;
  double cosine = 1;
};

struct TensorReport {
  DType dtype;
  std::vector<int64_t> shape;
};

// run and check.
struct RunReport {
  std::string role;
  std::string category;
  std::string source;
  std::optional<Strictness> strictness;
  Problem problem;
  int threads = 1;
  Timing timing;
  double tflops = 0;
  std::shared_ptr<const Receipt> receipt;
  std::optional<ComparisonReport> compare;
  std::optional<ComparisonReport> compare_lse;
  std::optional<int64_t> oracle_rows;    // check: how many rows the oracle computed
  std::optional<QualityReport> quality;  // check, of a sparse path
  TensorReport out;
  std::optional<TensorReport> lse;
  std::optional<std::string> output_file;
};

struct BackendReport {
  BackendName backend;
  std::vector<PlatformId> platforms;
  Availability availability;
  ExecutionPathResult report;
  std::vector<Reason> assumed;
};
struct BackendsReport {
  DeviceFacts facts;
  std::optional<Problem> problem;
  std::vector<BackendReport> backends;
};

struct BaselineReport {
  std::string name;
  std::string version;
  double median_ms = 0;
  double ratio = 0;  // baseline time over ours: above 1 we are faster
  std::optional<size_t> memory_bytes;
};
struct BenchCase {
  Problem problem;
  BackendName backend;
  std::string path;
  Timing timing;
  double tflops = 0;
  std::optional<double> tflops_kept;
  std::optional<double> density;
  size_t memory_bytes = 0;  // workspace and block lists
  std::optional<double> peak_fraction;
  std::optional<double> peak_tflops;  // of all threads
  std::optional<double> rel_l2;
  std::optional<bool> pass;
  std::vector<BaselineReport> baselines;
};
struct BenchReport {
  std::string device;
  std::string isa;
  int threads = 1;
  std::optional<double> bytes_per_second;  // of a copy in memory by all threads
  std::vector<BenchCase> cases;
};

}  // namespace fovea::cli
