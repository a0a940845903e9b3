#include "fovea/reason.hpp"

#include <array>
#include <cstddef>

namespace fovea {
namespace {

// How a code reads: `subject` names the thing, with $f for the field and $g for what was asked;
// `accepted` introduces what would have been accepted; empty
// when the sentence has said it.
struct Wording {
  ReasonCode code;
  std::string_view name;
  std::string_view subject;
  std::string_view accepted;
};

constexpr std::string_view kRefused = "$f $g is not supported";

constexpr std::array kWordings = {
    Wording{ReasonCode::dtype, "dtype", kRefused, "accepted"},
    Wording{ReasonCode::output_dtype, "output_dtype", kRefused, "accepted"},
    Wording{ReasonCode::head_dim, "head_dim", kRefused, "accepted"},
    Wording{ReasonCode::dim_v, "dim_v", kRefused, "accepted"},
    Wording{ReasonCode::heads, "heads", kRefused, "accepted"},
    Wording{ReasonCode::seq_limit, "seq_limit", "$f $g is beyond the limit", "limit"},
    Wording{ReasonCode::layout, "layout", kRefused, "accepted"},
    Wording{ReasonCode::strides, "strides", "$f $g cannot be read in place", "accepted"},
    Wording{ReasonCode::alignment, "alignment", "$f aligned to $g cannot be read", "accepted"},
    Wording{ReasonCode::mask, "mask", kRefused, "accepted"},
    Wording{ReasonCode::mask_dtype, "mask_dtype", kRefused, "accepted"},
    Wording{ReasonCode::causal, "causal", "causal masking is not supported", ""},
    Wording{ReasonCode::window, "window", kRefused, "accepted"},
    Wording{ReasonCode::kv_lengths, "kv_lengths", "per-item key lengths are not supported", ""},
    Wording{ReasonCode::packed, "packed", "packed documents are not supported", ""},
    Wording{ReasonCode::piecewise, "piecewise", kRefused, "accepted"},
    Wording{ReasonCode::metadata, "metadata", "metadata $f is $g", "accepted"},
    Wording{ReasonCode::lse, "lse", "the log-sum-exp output is not supported", ""},
    Wording{ReasonCode::scale, "scale", kRefused, "accepted"},
    Wording{ReasonCode::sparse, "sparse", kRefused, "accepted"},
    Wording{ReasonCode::sparse_state, "sparse_state", "$f $g does not fit", "needed"},
    Wording{ReasonCode::schedule, "schedule", kRefused, "accepted"},
    Wording{ReasonCode::platform, "platform", "$f $g is not a platform it runs on", "runs on"},
    Wording{ReasonCode::architecture, "architecture", "$f is $g", "needed"},
    Wording{ReasonCode::isa, "isa", "$f $g lacks the instructions", "needed"},
    Wording{ReasonCode::version, "version", "$f $g does not fit", "needed"},
    Wording{ReasonCode::package, "package", "$f is $g", "needed"},
    Wording{ReasonCode::parallel, "parallel", kRefused, "accepted"},
    Wording{ReasonCode::compilation, "compilation", kRefused, "accepted"},
    Wording{ReasonCode::unvalidated, "unvalidated", "$f $g is not validated", ""},
    Wording{ReasonCode::prepared, "prepared", kRefused, "accepted"},
    Wording{ReasonCode::boundary, "boundary", kRefused, "accepted"},
    Wording{ReasonCode::paged_kv, "paged_kv", "paged key/value storage is not supported", ""},
    Wording{ReasonCode::option_owner, "option_owner", "$f does not belong to $g", "belongs to"},
    Wording{ReasonCode::option_value, "option_value", kRefused, "accepted"},
    Wording{ReasonCode::provider, "provider", "$f $g does not provide it", "accepted"},
    Wording{ReasonCode::mask_free, "mask_free", "it is chosen only for models that pass no mask",
            ""},
    Wording{ReasonCode::not_built, "not_built", "$f $g is not in this binary", "needed"},
    Wording{ReasonCode::not_registered, "not_registered", "nothing stands behind $g", ""},
    Wording{ReasonCode::plugin, "plugin", "$f: $g", "accepted"},
    Wording{ReasonCode::not_automatic, "not_automatic", "$g is never chosen automatically", ""},
    Wording{ReasonCode::assumed, "assumed", "$f is $g", "taken to be"},
    Wording{ReasonCode::known_fault, "known_fault", "$f $g is known to give wrong results",
            "accepted"},
};

constexpr bool in_order() {
  for (size_t i = 0; i < kWordings.size(); ++i)
    if (static_cast<size_t>(kWordings[i].code) != i) return false;
  return true;
}
static_assert(in_order() && kWordings.size() == static_cast<size_t>(ReasonCode::known_fault) + 1,
              "kWordings needs one row per ReasonCode, in the order of the enum");

const Wording* wording(ReasonCode code) noexcept {
  const auto index = static_cast<size_t>(code);
  return index < kWordings.size() ? &kWordings[index] : nullptr;
}

// Replaces $f and $g; an empty value takes the blank before it away.
std::string fill(std::string_view pattern, const Reason& reason) {
  std::string out;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '$') {
      out += pattern[i];
      continue;
    }
    const std::string& value = pattern[++i] == 'f' ? reason.field : reason.got;
    if (value.empty() && !out.empty() && out.back() == ' ') out.pop_back();
    out += value;
  }
  return out;
}

}  // namespace

std::string_view name(ReasonCode code) noexcept {
  const Wording* row = wording(code);
  return row != nullptr ? row->name : "unknown";
}

std::string sentence(const Reason& reason) {
  const Wording* row = wording(reason.code);
  std::string out = fill(row != nullptr ? row->subject : kRefused, reason);
  const std::string_view label = row != nullptr ? row->accepted : "accepted";
  if (!reason.accepted.empty() && !label.empty()) {
    out += " (";
    out += label;
    out += ": " + reason.accepted + ')';
  }
  if (!reason.remedy.empty()) out += ", " + reason.remedy;
  return out;
}

std::string sentence(const std::vector<Reason>& reasons) {
  std::string out;
  for (const Reason& reason : reasons) {
    if (!out.empty()) out += "; ";
    out += sentence(reason);
  }
  return out;
}

}  // namespace fovea
