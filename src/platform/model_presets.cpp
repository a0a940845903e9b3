#include "fovea/model_preset.hpp"

#include "src/core/text.hpp"
#include "src/platform/model_data.hpp"
#include "src/platform/preset_data.hpp"

namespace fovea {
namespace {

// The files that came with the source; a test reads every one of them.
const std::vector<platform::ModelData>& models() {
  static const std::vector<platform::ModelData> list = [] {
    std::vector<platform::ModelData> parsed;
    for (const platform::PresetFile& file : platform::model_files())
      if (auto model = platform::parse_model(file.text, file.path))
        parsed.push_back(*std::move(model));
    return parsed;
  }();
  return list;
}

}  // namespace

const std::vector<ModelPreset>& model_presets() {
  static const std::vector<ModelPreset> presets = [] {
    std::vector<ModelPreset> list;
    for (const platform::ModelData& model : models()) list.push_back(model.preset);
    return list;
  }();
  return presets;
}

Result<ModelDescription> describe_model(std::string_view name, ModelSize size) {
  const std::string_view word = text::trim(name);
  std::vector<std::string_view> names;
  for (const platform::ModelData& model : models()) {
    if (text::equal_folded(word, model.preset.name)) return platform::describe(model, size);
    names.push_back(model.preset.name);
  }
  return Error{ErrorCode::invalid_argument,
               text::concat("unknown model preset ", text::quote(word), "; presets are ",
                            text::join(names), text::suggestion(word, names)),
               {}};
}

Result<ModelDescription> describe_model_json(std::string_view json, std::string_view origin,
                                             ModelSize size) {
  FOVEA_TRY(const platform::ModelData model, platform::parse_model(json, origin));
  return platform::describe(model, size);
}

}  // namespace fovea
