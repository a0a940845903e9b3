#include "src/plugin/options.hpp"

#include "src/core/text.hpp"
#include "src/plugin/wire.hpp"

namespace fovea::plugin {
namespace {

constexpr size_t kMaxOptions = 64;
constexpr size_t kMaxChoices = 64;

// In the order of FOVEA_OPTION_...
constexpr OptionType kTypes[] = {OptionType::boolean, OptionType::integer, OptionType::number,
                                 OptionType::text, OptionType::choice};

Result<OptionField> read_option(const fovea_plugin_option* given, const std::string& name,
                                std::string_view who) {
  FOVEA_TRY(const fovea_plugin_option option,
            read_struct(given, offsetof(fovea_plugin_option, has_minimum), who, "an option"));
  if (option.type < FOVEA_OPTION_BOOLEAN || option.type > FOVEA_OPTION_CHOICE)
    return misbehaved(who, text::concat("an option of backend ", name, " has type ", option.type,
                                        ", which is not in 0..4"));
  OptionField field;
  field.name = read_text(option.name);
  field.type = kTypes[option.type];
  if (option.has_minimum != 0) field.minimum = option.minimum;
  if (option.has_maximum != 0) field.maximum = option.maximum;
  if (option.choice_count > kMaxChoices)
    return misbehaved(
        who, text::concat("option ", field.name, " of backend ", name, " has ", option.choice_count,
                          " choices, which is not in 0..", kMaxChoices));
  for (size_t i = 0; i < option.choice_count; ++i) {
    if (option.choices == nullptr || option.choices[i] == nullptr)
      return misbehaved(who, text::concat("a choice of option ", field.name, " is NULL"));
    field.choices.push_back(read_text(option.choices[i]));
  }
  field.default_value = read_text(option.default_value);
  field.summary = read_text(option.summary);
  return field;
}

}  // namespace

Result<std::vector<OptionField>> read_options(const fovea_plugin_backend& backend,
                                              const std::string& name, std::string_view who) {
  if (backend.option_count > kMaxOptions)
    return misbehaved(who, text::concat("backend ", name, " has ", backend.option_count,
                                        " options, which is not in 0..", kMaxOptions));
  if (backend.option_count > 0 && backend.options == nullptr)
    return misbehaved(who, "the list of options of backend " + name + " is NULL");
  std::vector<OptionField> fields;
  for (size_t i = 0; i < backend.option_count; ++i) {
    FOVEA_TRY(OptionField field, read_option(backend.options[i], name, who));
    fields.push_back(std::move(field));
  }
  return fields;
}

}  // namespace fovea::plugin
