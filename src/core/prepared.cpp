#include "fovea/prepared.hpp"

#include <algorithm>
#include <utility>

#include "src/core/text.hpp"

namespace fovea {
namespace {

bool plain_name(std::string_view name) noexcept {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

Error refuse(const std::string& what) {
  return {ErrorCode::invalid_argument, text::concat("prepared tensors: ", what), {}};
}

}  // namespace

Result<std::shared_ptr<const PreparedTensors>> PreparedTensors::create(std::vector<Entry> entries) {
  if (entries.empty()) return refuse("there is none (accepted: one or more)");
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.name < b.name; });
  std::shared_ptr<PreparedTensors> set(new PreparedTensors());
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    if (!plain_name(entry.name))
      return refuse(text::concat("name ", text::quote(entry.name),
                                 " is not accepted (accepted: letters, digits, '_')"));
    if (i > 0 && entries[i - 1].name == entry.name)
      return refuse(text::concat("name '", entry.name, "' is given twice"));
    const TensorView& view = entry.tensor.view();
    if (!view.present()) return refuse(text::concat("tensor '", entry.name, "' is absent"));
    set->signature_ += text::concat(i > 0 ? "," : "", entry.name, ':', to_string(view), '@',
                                    to_string(view.device));
  }
  set->entries_ = std::move(entries);
  return std::shared_ptr<const PreparedTensors>(std::move(set));
}

const TensorView* PreparedTensors::find(std::string_view name) const noexcept {
  for (const Entry& entry : entries_)
    if (entry.name == name) return &entry.tensor.view();
  return nullptr;
}

}  // namespace fovea
