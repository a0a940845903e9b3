#include "src/config/rules.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "src/config/fields.hpp"
#include "src/core/text.hpp"

namespace fovea::config {
namespace {

using text::concat;

// "use TRTLLM_ATTN" or "use one of A, B".
std::string advise(std::span<const BackendName> owners) {
  return concat(owners.size() == 1 ? "use " : "use one of ", list_names(owners));
}

void not_owned(std::string_view what, std::span<const BackendName> owners,
               const AttentionSpec& spec, const Path& path, Problems& problems) {
  const std::string backend = name(spec.backend);
  problems.add(path, ReasonCode::option_owner,
               concat(backend, " does not take ", what, "; it belongs to ", list_names(owners),
                      "; remove it or ", advise(owners)),
               backend, list_names(owners), concat("remove it or ", advise(owners)));
}

// Fields that the backend does not take and that say something else than in `plain`, the same
// struct with its defaults.
void check_fields(std::span<const Field> fields, const void* owner, const void* plain,
                  const AttentionSpec& spec, const Path& path, Problems& problems) {
  for (const Field& field : fields) {
    if (field.owners.empty() || contains(field.owners, spec.backend)) continue;
    if (write_json(field.get(owner)) != write_json(field.get(plain)))
      not_owned(field.name, field.owners, spec, path / field.name, problems);
  }
}

void check_ownership(const AttentionSpec& spec, const Path& path, Problems& problems) {
  AttentionSpec plain;
  for (const Block& block : blocks()) {
    const void* given = block.find(spec);
    if (given == nullptr) continue;
    const Path place = path / block.name;
    if (contains(block.owners, spec.backend))
      check_fields(block.fields, given, block.emplace(plain), spec, place, problems);
    else
      not_owned(block.name, block.owners, spec, place, problems);
  }
  check_fields(spec_fields(), &spec, &plain, spec, path, problems);
}

// A value that is legal in general but not with this backend.
void narrowed(const AttentionSpec& spec, const Path& path, std::string_view got,
              std::string_view accepted, Problems& problems) {
  problems.add(path, ReasonCode::option_value,
               concat(name(spec.backend), " does not take ", got, "; accepted: ", accepted),
               std::string(got), std::string(accepted));
}

void check_type(const AttentionSpec& spec, const Path& path, const std::optional<std::string>& type,
                std::span<const std::string_view> accepted, Problems& problems) {
  if (!type || std::find(accepted.begin(), accepted.end(), *type) != accepted.end()) return;
  narrowed(spec, path, *type, text::join(accepted), problems);
}

void check_quant(const AttentionSpec& spec, const Path& path, Problems& problems) {
  const QuantOptions& quant = *spec.quant;
  const QuantOptions defaults;
  const bool default_blocks =
      quant.q_block_size == defaults.q_block_size && quant.k_block_size == defaults.k_block_size;
  if (!default_blocks && !quant.dtype_qk && spec.backend == backend::TRTLLM_ATTN) {
    problems.add(path, ReasonCode::option_value,
                 "q_block_size and k_block_size mean nothing without dtype_qk; set dtype_qk or "
                 "remove them");
  }
  if (spec.backend == backend::FLASHINFER_ATTN) {
    constexpr std::array<std::string_view, 2> kQk = {"float16", "bfloat16"};
    constexpr std::array<std::string_view, 3> kVo = {"float16", "bfloat16", "fp8_e4m3"};
    check_type(spec, path / "dtype_qk", quant.dtype_qk, kQk, problems);
    check_type(spec, path / "dtype_vo", quant.dtype_vo, kVo, problems);
  }
  if (spec.backend == backend::TRTLLM_ATTN) {
    constexpr std::array<std::string_view, 2> kQk = {"int8", "fp8_e4m3"};
    constexpr std::array<std::string_view, 1> kVo = {"fp8_e4m3"};
    check_type(spec, path / "dtype_qk", quant.dtype_qk, kQk, problems);
    check_type(spec, path / "dtype_vo", quant.dtype_vo, kVo, problems);
    if (quant.dtype_vo && !quant.dtype_qk) {
      problems.add(path / "dtype_vo", ReasonCode::option_value,
                   "TRTLLM_ATTN quantises V only together with Q and K; set dtype_qk to int8 or "
                   "fp8_e4m3");
    }
  }
}

void check_skip_softmax(const AttentionSpec& spec, const Path& path, Problems& problems) {
  const SkipSoftmaxOptions& skip = *spec.skip_softmax;
  if (skip.threshold && skip.target_sparsity) {
    problems.add(path, ReasonCode::option_value,
                 "threshold and target_sparsity exclude each other; keep one");
  }
  if (skip.disabled_until_timestep != 0 && !skip.threshold && !skip.target_sparsity) {
    problems.add(path / "disabled_until_timestep", ReasonCode::option_value,
                 "means nothing without threshold or target_sparsity; set one of them");
  }
}

void check_block_sparse(const AttentionSpec& spec, const Path& path, Problems& problems) {
  const BlockSparseOptions& sparse = *spec.block_sparse;
  if (spec.backend == backend::RAINFUSION_ATTN) {
    if (sparse.block_size != 128) {
      narrowed(spec, path / "block_size", std::to_string(sparse.block_size), "128", problems);
    }
  } else if (sparse.precision != "bf16") {
    narrowed(spec, path / "precision", sparse.precision, "bf16", problems);
  }
  if (spec.backend != backend::BLOCK_SPARSE_ATTN && sparse.selection != "block_topk") {
    narrowed(spec, path / "selection", sparse.selection, "block_topk", problems);
  }
}

void check_dense_backend(BackendName dense, const Path& path, Problems& problems) {
  if (!is_sparse(dense)) return;
  problems.add(path / "dense_backend", ReasonCode::option_value,
               concat(name(dense), " is sparse itself; name a dense backend such as FLASH_ATTN"),
               name(dense));
}

void check_extra(const AttentionSpec& spec, const Path& path, Problems& problems) {
  for (const auto& [owner, options] : spec.extra) {
    const Path place = path / "extra" / owner;
    const auto backend = parse_backend(owner);
    if (backend && *backend == spec.backend) continue;
    problems.add(place, ReasonCode::option_owner,
                 concat(name(spec.backend), " does not take the options of ", owner,
                        "; remove them or set backend to ", owner),
                 name(spec.backend), owner);
  }
}

}  // namespace

std::string option_blocks(const AttentionSpec& spec) {
  std::vector<std::string> blocks;
  if (spec.quant) blocks.push_back("quant");
  if (spec.aiter_quant) blocks.push_back("aiter_quant");
  if (spec.skip_softmax) blocks.push_back("skip_softmax");
  if (spec.block_sparse) blocks.push_back("block_sparse");
  if (spec.fastvideo_vsa_topk) blocks.push_back("fastvideo_vsa_topk");
  if (spec.radial) blocks.push_back("radial");
  if (spec.local_sparse) blocks.push_back("local_sparse");
  return text::join(blocks);
}

bool is_sparse(BackendName backend) noexcept {
  constexpr BackendName kSparse[] = {backend::RADIAL_ATTN,     backend::LOCAL_SPARSE_ATTN,
                                     backend::SPARGE_ATTN,     backend::BLOCK_SPARSE_ATTN,
                                     backend::RAINFUSION_ATTN, backend::FASTVIDEO_VSA};
  return contains(kSparse, backend);
}

void check_rules(const AttentionSpec& spec, const Path& path, Problems& problems) {
  check_ownership(spec, path, problems);
  if (spec.quant) check_quant(spec, path / "quant", problems);
  if (spec.skip_softmax) check_skip_softmax(spec, path / "skip_softmax", problems);
  if (spec.block_sparse && contains(find_block("block_sparse")->owners, spec.backend)) {
    check_block_sparse(spec, path / "block_sparse", problems);
  }
  if (spec.radial) check_dense_backend(spec.radial->dense_backend, path / "radial", problems);
  if (spec.local_sparse) {
    check_dense_backend(spec.local_sparse->dense_backend, path / "local_sparse", problems);
  }
  check_extra(spec, path, problems);
  if (spec.from_factory && spec.strictness != Strictness::prefer) {
    problems.add(path / "from_factory", ReasonCode::option_value,
                 "needs strictness prefer, because it runs dense_backend without a sparse state");
  }
}

}  // namespace fovea::config
