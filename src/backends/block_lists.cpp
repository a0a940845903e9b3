#include "src/backends/block_lists.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "src/core/text.hpp"
#include "src/sparse/pattern.hpp"

namespace fovea::backends {
namespace {

using sparse::Pattern;

ListAnswer refuse(Reason reason) { return {std::nullopt, {std::move(reason)}}; }

// The one pattern that a name takes; nothing where it takes any.
std::string_view own_pattern(BackendName name) noexcept {
  if (name == backend::RADIAL_ATTN) return "radial";
  if (name == backend::LOCAL_SPARSE_ATTN) return "local";
  if (name == backend::SPARGE_ATTN) return "topk";
  return {};
}

// The options that apply where a spec says nothing.
BlockSparseOptions options_of(const AttentionSpec* spec) {
  return spec != nullptr ? spec->block_sparse.value_or(BlockSparseOptions{}) : BlockSparseOptions{};
}

BlockTopk topk_of(const BlockSparseOptions& options) {
  return {options.sparsity, static_cast<int32_t>(options.block_size), options.protected_prefix};
}

// Why a mask does not keep the first keys in every row.
std::optional<Reason> unprotected(const BlockMask& mask, int64_t prefix) {
  const int64_t blocks = (prefix + mask.shape().block_kv - 1) / mask.shape().block_kv;
  const auto row =
      row_without_prefix(mask.counts(), mask.indices().data(), mask.max_count(), blocks);
  if (!row) return std::nullopt;
  return Reason{
      ReasonCode::sparse, "protected_kv_prefix", std::to_string(prefix),
      text::concat("a pattern that keeps the first ", blocks, blocks == 1 ? " block" : " blocks",
                   " of keys in every row; row ", *row % mask.rows(), " does not"),
      "add these blocks to the mask or protect no keys"};
}

// What a configuration asks for that these kernels do not do.
std::vector<Reason> option_refusals(BackendName name, const AttentionSpec* spec,
                                    const ExecutionContext& context) {
  std::vector<Reason> reasons;
  if (spec == nullptr || spec->backend != name) return reasons;
  const bool quantised = (spec->radial && spec->radial->use_sage_attention) ||
                         (spec->local_sparse && spec->local_sparse->use_sage_attention);
  if (quantised)
    reasons.push_back({ReasonCode::option_value, "use_sage_attention", "true", "false",
                       "there is no quantised kernel that reads block lists"});
  if (spec->local_sparse && spec->local_sparse->topk)
    reasons.push_back({ReasonCode::option_value, "local_sparse.topk",
                       std::to_string(*spec->local_sparse->topk), "unset",
                       "all blocks inside the window are kept"});
  if (spec->block_sparse && !context.sparse_state) {
    const BlockSparseOptions& options = *spec->block_sparse;
    if (options.start_step > 0 || options.end_step > 0 || !options.skip_layers.empty())
      reasons.push_back({ReasonCode::sparse_state, "sparse_state", "none", "a SparseAttentionState",
                         "pass sparse_state with the call: start_step, end_step and skip_layers "
                         "need the step and the layer"});
  }
  return reasons;
}

bool selects(BackendName name, const AttentionSpec* spec) {
  return name == backend::SPARGE_ATTN ||
         (name == backend::BLOCK_SPARSE_ATTN && options_of(spec).selection == "block_topk");
}

ListAnswer select(BlockTopk topk, const Problem& p, const ExecutionContext& context) {
  topk.protected_prefix = std::max(topk.protected_prefix, context.protected_kv_prefix);
  // What hides keys by more than their number would leave chosen blocks empty.
  std::vector<Reason> reasons;
  const auto refuse_field = [&](ReasonCode code, std::string_view field, std::string got) {
    reasons.push_back({code, std::string(field), std::move(got), "none",
                       "with blocks chosen from the data; give a block mask instead"});
  };
  if (p.mask.kind != MaskKind::none) refuse_field(ReasonCode::mask, "mask", "tensor");
  if (p.causal || p.window != Window{})
    refuse_field(
        ReasonCode::window, "window",
        p.causal ? std::string("causal") : text::concat(p.window.left, ",", p.window.right));
  if (!reasons.empty()) return {std::nullopt, std::move(reasons)};
  ListRequest request;
  request.source = ListSource::selected;
  request.topk = topk;
  request.shape = {topk.block_size, topk.block_size, topk_count(topk, p.seq_kv), p.batch,
                   p.heads_q};
  const int64_t columns = (p.seq_kv + topk.block_size - 1) / topk.block_size;
  if (columns > 0 && !p.has_kv_lengths)
    request.density = static_cast<double>(request.shape.most) / static_cast<double>(columns);
  return {std::move(request), {}};
}

ListAnswer plan_ahead(const Pattern& pattern, const Problem& p, const ExecutionContext& context) {
  ListRequest request;
  request.source = ListSource::planned;
  request.mask = context.block_mask;
  if (request.mask == nullptr) {
    auto built = sparse::planned_mask(pattern);
    if (!built)
      return refuse({ReasonCode::sparse, "sparse", p.sparse->name, {}, built.error().message});
    request.mask = std::move(built).value();
  }
  const BlockMask& mask = *request.mask;
  const BlockMaskShape& s = mask.shape();
  if (s.seq_q != p.seq_q || s.seq_kv != p.seq_kv)
    return refuse({ReasonCode::sparse,
                   "block_mask",
                   text::concat("of ", s.seq_q, " x ", s.seq_kv, " tokens"),
                   text::concat(p.seq_q, " x ", p.seq_kv),
                   {}});
  if (auto reason = unprotected(mask, context.protected_kv_prefix))
    return refuse(std::move(*reason));
  request.shape = {s.block_q, s.block_kv, mask.max_count(),
                   s.batch,   s.heads,    !mask.partial().empty()};
  request.density = mask.density();
  return {std::move(request), {}};
}

ListAnswer find_source(BackendName name, const Problem& p, const AttentionSpec* spec,
                       const ExecutionContext& context) {
  const std::string_view own = own_pattern(name);
  if (!p.sparse) {
    if (selects(name, spec)) return select(topk_of(options_of(spec)), p, context);
    if (name == backend::BLOCK_SPARSE_ATTN)
      return refuse({ReasonCode::sparse, "block_mask", "none", "a BlockMask or block lists",
                     "pass block_mask with the call, or set selection to block_topk"});
    return refuse({ReasonCode::sparse_state, "sparse_state", "none", "a SparseAttentionState",
                   "pass sparse_state with the call"});
  }
  if (!own.empty() && p.sparse->name != own)
    return refuse({ReasonCode::sparse, "sparse", p.sparse->name, std::string(own), {}});
  const Result<Pattern> pattern = sparse::read_pattern(p);
  if (!pattern)
    return refuse({ReasonCode::sparse, "sparse", p.sparse->name, {}, pattern.error().message});
  if (const auto* topk = std::get_if<BlockTopk>(&*pattern)) {
    if (name == backend::REFERENCE)
      return refuse({ReasonCode::sparse, "sparse", "topk", "a block mask",
                     "pass the blocks that select_blocks chooses as block_mask"});
    return select(*topk, p, context);
  }
  if (const auto* lists = std::get_if<ListShape>(&*pattern)) {
    if (selects(name, spec))
      return refuse({ReasonCode::sparse, "block_mask", "given", "none with selection block_topk",
                     "set block_sparse.selection to mask"});
    if (context.block_mask != nullptr) return plan_ahead(*pattern, p, context);
    ListRequest request;
    request.shape = *lists;
    return {std::move(request), {}};
  }
  return plan_ahead(*pattern, p, context);
}

}  // namespace

std::optional<int64_t> row_without_prefix(std::span<const int32_t> counts, const int32_t* indices,
                                          int64_t most, int64_t blocks) noexcept {
  if (blocks == 0) return std::nullopt;
  for (size_t row = 0; row < counts.size(); ++row) {
    const int32_t* list = indices + static_cast<int64_t>(row) * most;
    if (counts[row] < blocks || list[blocks - 1] != blocks - 1) return static_cast<int64_t>(row);
  }
  return std::nullopt;
}

ListAnswer read_lists(BackendName name, const Problem& p, const AttentionSpec* spec,
                      const ExecutionContext& context) {
  ListAnswer answer = find_source(name, p, spec, context);
  std::vector<Reason> reasons = option_refusals(name, spec, context);
  if (reasons.empty()) return answer;
  answer.request.reset();
  answer.reasons.insert(answer.reasons.begin(), reasons.begin(), reasons.end());
  return answer;
}

}  // namespace fovea::backends
