// Every name a user can type has its page and its row in the table.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "fovea/backend_name.hpp"
#include "src/core/text.hpp"

namespace fovea {
namespace {

std::string read(const std::string& path) {
  std::ifstream file(std::string(FOVEA_SOURCE_DIR) + '/' + path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(BackendPages, EveryNameHasAPageWithItsFourSections) {
  for (const BackendNameInfo& info : backend_names()) {
    SCOPED_TRACE(info.canonical);
    const std::string page = read("docs/backends/" + text::fold(info.canonical) + ".md");
    EXPECT_TRUE(page.starts_with("# " + std::string(info.canonical) + "\n"));
    size_t position = 0;
    for (const char* title : {"Installation", "Fallback", "Quality", "Tuning"}) {
      const std::string heading = std::string("\n## ") + title + "\n\n";
      const size_t found = page.find(heading, position);
      ASSERT_NE(found, std::string::npos) << title;
      position = found + heading.size();
      EXPECT_GT(page.size(), position + 10) << title << " is empty";
    }
    for (const std::string_view alias : info.aliases)
      EXPECT_NE(page.find('`' + std::string(alias) + '`'), std::string::npos) << alias;
  }
}

TEST(BackendPages, EveryNameHasARowInTheTable) {
  const std::string table = read("docs/backends.md");
  for (const BackendNameInfo& info : backend_names())
    EXPECT_NE(table.find("| `" + std::string(info.canonical) + "` |"), std::string::npos)
        << info.canonical;
}

}  // namespace
}  // namespace fovea
