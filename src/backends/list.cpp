#include "src/backends/list.hpp"

#include "src/backends/block_sparse/backend.hpp"
#include "src/backends/block_sparse_sm90/backend.hpp"
#include "src/backends/cpu_flash/backend.hpp"
#include "src/backends/cuda_sdpa/backend.hpp"
#include "src/backends/cudnn/backend.hpp"
#include "src/backends/flash/backend.hpp"
#include "src/backends/flash_sm80/backend.hpp"
#include "src/backends/flash_sm90/backend.hpp"
#include "src/backends/reference/backend.hpp"

namespace fovea::backends {

std::span<const BackendEntry> backend_list() noexcept {
  static constexpr BackendEntry kList[] = {
      {"builtin:block_sparse", make_block_sparse_backend},
      {"builtin:block_sparse_sm90", make_block_sparse_sm90_backend},
      {"builtin:cpu_flash", make_cpu_flash_backend},
      {"builtin:cuda_sdpa", make_cuda_sdpa_backend},
      {"builtin:cudnn", make_cudnn_backend},
      {"builtin:flash", make_flash_backend},
      {"builtin:flash_sm80", make_flash_sm80_backend},
      {"builtin:flash_sm90", make_flash_sm90_backend},
      {"builtin:reference", make_reference_backend},
  };
  return kList;
}

}  // namespace fovea::backends
