#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "fovea/config.hpp"
#include "src/core/text.hpp"

namespace fovea {
namespace {

// A configuration is a page of text; anything larger is the wrong file.
constexpr uintmax_t kMaxBytes = 1 << 20;

}  // namespace

Result<std::string> read_config_argument(const std::string& argument, std::string_view kind) {
  const auto file_error = [&](const std::string& path, std::string_view why) {
    return Error{
        ErrorCode::invalid_file, text::concat(kind, " file ", text::quote(path), ": ", why), {}};
  };
  const std::string_view trimmed = text::trim(argument);
  if (trimmed.empty()) return file_error(argument, "the path is empty");
  if (trimmed.front() == '{') return argument;
  std::error_code code;
  const std::filesystem::path path(argument);
  const auto status = std::filesystem::status(path, code);
  if (!std::filesystem::exists(status)) {
    return file_error(argument, "there is no such file; JSON text would start with '{'");
  }
  if (std::filesystem::is_directory(status)) return file_error(argument, "is a directory");
  std::ifstream stream(path, std::ios::binary);
  if (!stream)
    return file_error(argument, text::concat("cannot be opened: ", std::strerror(errno)));
  std::string content;
  char buffer[1 << 14];
  while (stream.read(buffer, sizeof buffer) || stream.gcount() > 0) {
    content.append(buffer, static_cast<size_t>(stream.gcount()));
    if (content.size() > kMaxBytes) return file_error(argument, "is larger than 1 MiB");
  }
  if (stream.bad()) return file_error(argument, "cannot be read");
  if (text::trim(content).empty()) return file_error(argument, "is empty");
  return content;
}

}  // namespace fovea
