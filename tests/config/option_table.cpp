// Prints the tables of docs/config.md from the field tables: one per option block.
#include <cstdio>
#include <string>

#include "fovea/option_fields.hpp"

namespace {

std::string names(const std::vector<fovea::BackendName>& backends) {
  std::string out;
  for (const fovea::BackendName backend : backends) {
    if (!out.empty()) out += ", ";
    out += '`';
    out += fovea::name(backend);
    out += '`';
  }
  return out;
}

std::string code(const std::string& text) { return text.empty() ? "" : "`" + text + "`"; }

void print(const fovea::OptionBlockInfo& block) {
  if (block.name.empty()) {
    std::printf("### Keys of an entry\n\n");
  } else {
    std::printf("### `%s`\n\n%s Owners: %s.\n\n", block.name.c_str(), block.summary.c_str(),
                names(block.owners).c_str());
  }
  std::printf("| Key | Accepted | Default | Meaning |\n|---|---|---|---|\n");
  for (const fovea::OptionFieldInfo& field : block.fields) {
    std::string meaning = field.summary;
    if (!field.owners.empty()) meaning += " Only " + names(field.owners) + ".";
    std::printf("| `%s` | %s | %s | %s |\n", field.name.c_str(), field.accepted.c_str(),
                code(field.default_value).c_str(), meaning.c_str());
  }
  std::printf("\n");
}

}  // namespace

int main() {
  for (const fovea::OptionBlockInfo& block : fovea::option_blocks()) print(block);
  return 0;
}
