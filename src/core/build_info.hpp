#pragma once

namespace fovea {

// What this binary was built from and with. Every string is static and never null; a component that
// is not in the binary has an empty version.
struct BuildInfo {
  const char* version;        // of Fovea, e.g. "0.1.0"
  const char* compiler;       // e.g. "GNU 12.2.0"
  const char* build_type;     // e.g. "Release"
  const char* sanitizer;      // "", "address" or "thread"
  const char* cuda;           // toolkit version
  const char* cuda_embedded;  // architectures of the embedded kernels, e.g. "sm_80+sm_90a"
  const char* cudnn;
  const char* nccl;
  const char* mpi;
};

const BuildInfo& build_info() noexcept;

}  // namespace fovea
