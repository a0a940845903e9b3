#include "src/plugin/wire.hpp"

#include <optional>

#include "src/backends/skip_decision.hpp"
#include "src/core/text.hpp"

namespace fovea::plugin {
namespace {

static_assert(static_cast<int>(Layout::bshd) == FOVEA_LAYOUT_BSHD);
static_assert(static_cast<int>(Layout::bhsd) == FOVEA_LAYOUT_BHSD);
static_assert(static_cast<int>(Layout::packed) == FOVEA_LAYOUT_PACKED);
static_assert(static_cast<int>(MaskKind::none) == FOVEA_MASK_NONE);
static_assert(static_cast<int>(MaskKind::keys) == FOVEA_MASK_KEYS);
static_assert(static_cast<int>(MaskKind::boolean) == FOVEA_MASK_BOOLEAN);
static_assert(static_cast<int>(MaskKind::bias) == FOVEA_MASK_BIAS);

fovea_plugin_dtype to_wire(DType dtype) noexcept { return {dtype.code, dtype.bits, dtype.lanes}; }

void copy_strides(const Strides& from, int64_t (&to)[3]) noexcept {
  to[0] = from.batch;
  to[1] = from.seq;
  to[2] = from.head;
}

std::optional<ReasonCode> reason_code(std::string_view text) noexcept {
  for (uint16_t i = 0; i <= static_cast<uint16_t>(ReasonCode::known_fault); ++i)
    if (name(static_cast<ReasonCode>(i)) == text) return static_cast<ReasonCode>(i);
  return std::nullopt;
}

}  // namespace

std::string read_text(const char* text, std::string_view fallback) {
  if (text == nullptr) return std::string(fallback);
  std::string copy(text, strnlen(text, kMaxText));
  if (text::valid_utf8(copy)) return copy;
  for (char& c : copy)
    if (static_cast<unsigned char>(c) >= 0x80) c = '?';
  return copy;
}

Error misbehaved(std::string_view who, std::string what) {
  Reason reason{ReasonCode::plugin,
                who.empty() ? "plugin" : "plugin " + std::string(who),
                std::move(what),
                {},
                {}};
  std::string message = sentence(reason);
  return {ErrorCode::not_available, std::move(message), {std::move(reason)}};
}

Sink::Sink() : sink_{sizeof(fovea_plugin_sink), this, &Sink::add_reason, &Sink::set_message} {}

void Sink::add_reason(const fovea_plugin_sink* sink, const fovea_plugin_reason* reason) noexcept {
  if (sink == nullptr || sink->host == nullptr) return;
  Sink& self = *static_cast<Sink*>(sink->host);
  if (self.reasons_.size() >= kMaxReasons) return;
  try {
    const auto read = read_struct(reason, offsetof(fovea_plugin_reason, field), {}, "reason");
    if (!read) {
      self.reasons_.push_back(read.error().reasons.front());
      return;
    }
    const std::string code = read_text(read->code);
    Reason out{ReasonCode::plugin, read_text(read->field), read_text(read->got),
               read_text(read->accepted), read_text(read->remedy)};
    if (const auto known = reason_code(code))
      out.code = *known;
    else
      out.field = text::concat(out.field, out.field.empty() ? "" : " ", "(reason code ",
                               text::quote(code), " is not known here)");
    self.reasons_.push_back(std::move(out));
  } catch (...) {
    // Without memory for it the reason is lost; the call's outcome does not depend on it.
  }
}

void Sink::set_message(const fovea_plugin_sink* sink, const char* message) noexcept {
  if (sink == nullptr || sink->host == nullptr) return;
  try {
    static_cast<Sink*>(sink->host)->message_ = read_text(message);
  } catch (...) {
    // As above.
  }
}

WireProblem::WireProblem(const Problem& p) : text_(to_string(p)) {
  wire_.struct_size = sizeof wire_;
  wire_.text = text_.c_str();
  wire_.dtype = to_wire(p.dtype);
  wire_.out_dtype = to_wire(p.out_dtype);
  wire_.batch = p.batch;
  wire_.heads_q = p.heads_q;
  wire_.heads_kv = p.heads_kv;
  wire_.seq_q = p.seq_q;
  wire_.seq_kv = p.seq_kv;
  wire_.head_dim = p.head_dim;
  wire_.dim_v = p.dim_v;
  wire_.layout = static_cast<int32_t>(p.layout);
  wire_.out_layout = static_cast<int32_t>(p.out_layout);
  wire_.causal = p.causal ? 1 : 0;
  wire_.lse = p.lse ? 1 : 0;
  wire_.window_left = p.window.left;
  wire_.window_right = p.window.right;
  wire_.scale = p.effective_scale();
  wire_.mask_kind = static_cast<int32_t>(p.mask.kind);
  wire_.mask_dtype = to_wire(p.mask.dtype);
  wire_.mask_per_batch = p.mask.per_batch ? 1 : 0;
  wire_.mask_per_head = p.mask.per_head ? 1 : 0;
  wire_.mask_per_query = p.mask.per_query ? 1 : 0;
  wire_.has_kv_lengths = p.has_kv_lengths ? 1 : 0;
  wire_.documents = p.documents;
  wire_.max_document_q = p.max_document_q;
  wire_.max_document_kv = p.max_document_kv;
  copy_strides(p.q_strides, wire_.q_strides);
  copy_strides(p.k_strides, wire_.k_strides);
  copy_strides(p.v_strides, wire_.v_strides);
  wire_.alignment = p.alignment;
  if (p.sparse) {
    sparse_ = p.sparse->name;
    wire_.sparse_pattern = sparse_.c_str();
  }
}

WireContext::WireContext(BackendName backend, const Problem& problem, const AttentionSpec* spec,
                         const ExecutionContext& context)
    : backend_(name(backend)),
      platform_(name(context.facts.platform())),
      facts_(context.facts.text()),
      spec_(spec == nullptr ? std::string() : to_json(*spec)),
      mask_(name(context.mask_mode)),
      packing_(name(context.packing_mode)),
      parallel_(name(context.parallel_strategy)),
      kv_cache_(context.kv_cache_dtype) {
  wire_.struct_size = sizeof wire_;
  wire_.backend_name = backend_.c_str();
  wire_.platform = platform_.c_str();
  wire_.facts = facts_.c_str();
  wire_.spec_json = spec == nullptr ? nullptr : spec_.c_str();
  wire_.local = context.local ? 1 : 0;
  wire_.require_fullgraph = context.require_fullgraph ? 1 : 0;
  wire_.paged_kv = context.paged_kv ? 1 : 0;
  wire_.piecewise = context.piecewise ? 1 : 0;
  wire_.sparse_state = context.sparse_state ? 1 : 0;
  wire_.mask_mode = mask_.c_str();
  wire_.packing_mode = packing_.c_str();
  wire_.parallel_strategy = parallel_.c_str();
  wire_.kv_cache_dtype = kv_cache_.c_str();
  wire_.protected_kv_prefix = context.protected_kv_prefix;
  if (const auto skip = backends::skip_decision(spec, problem, context)) {
    skip_ = name(skip->state);
    wire_.skip_softmax = skip_.c_str();
    wire_.skip_factor = skip->factor.value_or(0);
  }
}

fovea_tensor to_wire(const TensorView& view) noexcept {
  fovea_tensor t{};
  if (!view.present()) return t;
  t.data = view.data;
  t.device_type = static_cast<int32_t>(view.device.type);
  t.device_index = view.device.index;
  t.dtype_code = view.dtype.code;
  t.dtype_bits = view.dtype.bits;
  t.dtype_lanes = view.dtype.lanes;
  t.rank = view.rank;
  std::copy(view.shape.begin(), view.shape.end(), t.shape);
  std::copy(view.stride.begin(), view.stride.end(), t.stride);
  return t;
}

}  // namespace fovea::plugin
