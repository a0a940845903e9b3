// Kernels of packages that the host program brings. The library decides, checks and prepares; the
// kernel computes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/backend.hpp"
#include "fovea/backend_name.hpp"
#include "fovea/calibration.hpp"
#include "fovea/error.hpp"
#include "fovea/problem.hpp"

namespace fovea {

class ValidationFile;

// One call of a package's kernel.
struct PackageCall {
  std::string_view path;  // the path that resolution reported, e.g. "rocm_masked_varlen"
  const Problem& problem;
  // Tensors of `problem`. A mask has the shape that the path takes: [B,Skv] on masked varlen paths,
  // [B,1|H,Sq,Skv] (expanded in place) on NPU paths. Boundaries are in cu_seqlens_*; those made
  // from packed_padding lie in host memory. On a prefix slice k and v end with the valid keys.
  const AttentionTensors& tensors;
  // The configuration's entry, whose options the kernel honours; null for a platform's own choice.
  const AttentionSpec* spec = nullptr;
  // Rows from here on are padding: the kernel leaves them 0 with an LSE of -inf.
  int64_t valid_queries = 0;
  // What the metadata says for kernels that read it: first keys that a sparse selection keeps, and
  // the factor of laser attention's inputs.
  int64_t protected_kv_prefix = 0;
  std::optional<double> laser_input_scale;
  Stream stream;
  BackendName backend;  // the name that was asked for
  // What the skip_softmax of `spec` comes to here, null without one: only in the state `skips` may
  // tiles be skipped, else the kernel runs dense.
  const SkipDecision* skip = nullptr;
  // How prefix, videos and padding of the sequence lie; null: not said.
  const VideoLayout* video_layout = nullptr;
};

struct PackageKernel {
  std::string package;  // the fact that stands for it: "fa4", "mindiesd", "aiter", ...
  // For receipts, and while it is bound the fact of devices that are probed; empty: as the facts
  // say.
  std::string version;
  // Called for each run, from any thread. What it throws becomes a device_error.
  std::function<Status(const PackageCall&)> run;
  // The package's own rule for head sizes: nothing when it takes them, else why not. `alignment` is
  // the number of elements in 16 bytes. With it a path counts as supported for the sizes that it
  // takes, from the smallest to the largest of the validation run. Unset when the package publishes
  // none; then for the sizes of that run only, and FA4's never.
  std::function<std::optional<std::string>(int64_t head_dim, int64_t dim_v, int64_t alignment)>
      validate_dims;
  // What the kernel cannot do, beyond what its path says; pure. Unset: nothing.
  std::function<std::vector<Reason>(BackendName backend, const Problem& problem)> refusals;
  // Whether the kernel reads `spec`, `protected_kv_prefix` and `laser_input_scale` of a call. If
  // not, calls with option blocks or either value are refused by name.
  bool reads_options = true;
  // Records of hardware validations of this kernel beside the committed ones
  // (fovea/validation.hpp). Like those they count for their backend, path, kind of device and
  // version only.
  std::shared_ptr<const ValidationFile> validation;
};

// A backend that runs `kernel` on the paths of its package. Error invalid_argument: no package name
// or no run function. Most programs call bind_package (fovea/registry.hpp) instead.
FOVEA_API Result<std::shared_ptr<const Backend>> make_package_backend(PackageKernel kernel);

}  // namespace fovea
