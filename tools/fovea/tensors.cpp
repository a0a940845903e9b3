#include "tools/fovea/tensors.hpp"

#include "src/core/text.hpp"

namespace fovea::cli {

namespace {

// Prefixes under which the file has q, k and v, ready to be typed.
std::string fitting_prefixes(const SafetensorsFile& file) {
  constexpr size_t kMost = 4;
  std::vector<std::string> found;
  for (const SafetensorsEntry& entry : file.entries()) {
    if (!entry.name.ends_with('q')) continue;
    const std::string prefix = entry.name.substr(0, entry.name.size() - 1);
    if (!file.has(prefix + "k") || !file.has(prefix + "v")) continue;
    if (found.size() == kMost) {
      found.emplace_back("...");
      break;
    }
    found.push_back("--prefix " + prefix);
  }
  if (found.empty()) return "; it has no tensors P + q, k and v for any prefix P";
  return "; pass one of: " + text::join(found);
}

}  // namespace

Result<AttentionTensors> attention_inputs(const SafetensorsFile& file, const std::string& origin,
                                          const std::string& prefix) {
  AttentionTensors tensors;
  for (const auto& [name, view] :
       {std::pair{"q", &AttentionTensors::q}, std::pair{"k", &AttentionTensors::k},
        std::pair{"v", &AttentionTensors::v}}) {
    if (!file.has(prefix + name)) {
      return Error{ErrorCode::invalid_file,
                   text::concat(origin, " has no tensor ", text::quote(prefix + name),
                                fitting_prefixes(file)),
                   {}};
    }
    FOVEA_TRY(tensors.*view, file.tensor(prefix + name));
  }
  for (const auto& [name, view] : {std::pair{"mask", &AttentionTensors::mask},
                                   std::pair{"kv_lengths", &AttentionTensors::kv_lengths},
                                   std::pair{"cu_seqlens_q", &AttentionTensors::cu_seqlens_q},
                                   std::pair{"cu_seqlens_k", &AttentionTensors::cu_seqlens_kv},
                                   std::pair{"cu_seqlens_kv", &AttentionTensors::cu_seqlens_kv}}) {
    if (file.has(prefix + name)) {
      FOVEA_TRY(tensors.*view, file.tensor(prefix + name));
    }
  }
  return tensors;
}

Result<FoundTensor> find_tensor(const SafetensorsFile& file, const std::string& prefix,
                                const std::string& name) {
  for (const std::string& candidate : {prefix + name, name}) {
    if (!file.has(candidate)) continue;
    FOVEA_TRY(const TensorView view, file.tensor(candidate));
    return FoundTensor{candidate, view};
  }
  std::vector<std::string> names;
  for (const SafetensorsEntry& entry : file.entries()) names.push_back(entry.name);
  const std::string either =
      prefix.empty() ? std::string() : text::concat(" or ", text::quote(name));
  return Error{ErrorCode::invalid_file,
               text::concat("the input has no tensor ", text::quote(prefix + name), either,
                            text::suggestion(prefix + name, names)),
               {}};
}

void CallOutputs::place(AttentionTensors& tensors) const {
  tensors.out = out.view();
  tensors.lse = lse.view();
}

Result<CallOutputs> allocate_outputs(const AttentionTensors& inputs, const CallOptions& options) {
  FOVEA_TRY(const Problem problem, describe(inputs, options));
  FOVEA_TRY(const OutputSpecs specs, output_spec(problem));
  CallOutputs outputs;
  FOVEA_TRY(outputs.out, OwnedTensor::allocate(specs.out.dtype, specs.out.shape));
  if (problem.lse) {
    FOVEA_TRY(outputs.lse, OwnedTensor::allocate(specs.lse.dtype, specs.lse.shape));
  }
  return outputs;
}

}  // namespace fovea::cli
