// Tensors that are made once, ahead of the calls that read them: a query scale, a table, packed
// weights.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/error.hpp"
#include "fovea/owned_tensor.hpp"
#include "fovea/tensor_view.hpp"

namespace fovea {

// An immutable set of named tensors. It has owners and no registry: a layer or a recorded call
// holds it, hands it to the plan with every run, and it is freed with the last holder. Thread-safe
// to read.
class PreparedTensors {
 public:
  struct Entry {
    std::string name;  // letters, digits and '_'
    OwnedTensor tensor;
  };

  // Sorted by name. Errors: invalid_argument for no entry, a bad or repeated name, an absent
  // tensor.
  FOVEA_API static Result<std::shared_ptr<const PreparedTensors>> create(
      std::vector<Entry> entries);

  // Null when there is none of that name; lives as long as the set.
  FOVEA_API const TensorView* find(std::string_view name) const noexcept;
  // "q_scale:f32[8]@cpu": names, types, shapes and devices. Sets with one signature run through one
  // executable.
  const std::string& signature() const noexcept { return signature_; }

 private:
  PreparedTensors() = default;

  std::vector<Entry> entries_;
  std::string signature_;
};

}  // namespace fovea
