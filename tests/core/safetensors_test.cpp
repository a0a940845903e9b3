#include "src/core/safetensors.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "src/core/text.hpp"
#include "tests/golden/golden.hpp"

namespace fovea {
namespace {

namespace fs = std::filesystem;

// A folder that is removed after the test.
class Safetensors : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "fovea-XXXXXX").string();
    ASSERT_NE(nullptr, mkdtemp(pattern.data()));
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const char* name) const { return folder_ / name; }

  fs::path folder_;
};

std::string file_bytes(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string out(sizeof length, '\0');
  std::memcpy(out.data(), &length, sizeof length);
  return out + header + std::string(data_bytes, '\1');
}

Result<SafetensorsHeader> parse(const std::string& bytes) {
  return parse_safetensors(std::as_bytes(std::span(bytes)));
}

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_F(Safetensors, what_is_written_reads_back) {
  std::vector<float> f32(6);
  std::iota(f32.begin(), f32.end(), 0.5f);
  uint16_t half[3] = {0x3C00, 0x7C00, 0xFE00};
  uint8_t flags[5] = {0, 1, 1, 0, 1};
  int64_t longs[2] = {-1, int64_t{1} << 62};
  int32_t ints[1] = {-7};
  double f64[1] = {1e-300};
  const NamedTensor tensors[] = {{"mask", make_view(flags, kBool, {5})},
                                 {"q", make_view(f32.data(), kF32, {2, 1, 3})},
                                 {"half", make_view(half, kF16, {3})},
                                 {"brain", make_view(half, kBF16, {1, 3})},
                                 {"bytes", make_view(flags, kU8, {5, 1})},
                                 {"longs", make_view(longs, kI64, {2})},
                                 {"ints", make_view(ints, kI32, {1})},
                                 {"f64", make_view(f64, kF64, {1})},
                                 {"empty", make_view(nullptr, kF32, {0, 4})},
                                 {"na\"me\\\n\xC3\xA4", make_view(ints, kI32, {1})}};
  const std::pair<std::string, std::string> metadata[] = {{"source", "a \"test\""}};
  ASSERT_TRUE(write_safetensors(path("a"), tensors, metadata));
  const Result<SafetensorsFile> file = SafetensorsFile::open(path("a"));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(std::size(tensors), file->entries().size());
  ASSERT_EQ(1u, file->metadata().size());
  EXPECT_EQ("a \"test\"", file->metadata()[0].second);
  for (const NamedTensor& t : tensors) {
    const Result<TensorView> view = file->tensor(t.name);
    ASSERT_TRUE(view) << t.name;
    EXPECT_EQ(t.view.dtype, view->dtype);
    EXPECT_EQ(to_string(t.view), to_string(*view));
    EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(view->data) % size_bytes(view->dtype));
    const size_t bytes = static_cast<size_t>(t.view.numel()) * size_bytes(t.view.dtype);
    EXPECT_TRUE(bytes == 0 || std::memcmp(t.view.data, view->data, bytes) == 0) << t.name;
  }
}

TEST_F(Safetensors, data_starts_aligned_for_vector_loads) {
  float data[4] = {};
  const NamedTensor tensors[] = {{"x", make_view(data, kF32, {4})}};
  ASSERT_TRUE(write_safetensors(path("a"), tensors));
  const Result<SafetensorsFile> file = SafetensorsFile::open(path("a"));
  ASSERT_TRUE(file);
  EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(file->tensor("x")->data) % 64);
}

TEST_F(Safetensors, misaligned_data_is_copied_not_read_in_place) {
  std::string bytes = file_bytes(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 0);
  if (bytes.size() % 4 == 0)
    bytes = file_bytes(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]} })", 0);
  const float value = 2.5f;
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  write_file(path("a"), bytes);
  const Result<SafetensorsFile> file = SafetensorsFile::open(path("a"));
  ASSERT_TRUE(file) << file.error().message;
  const Result<TensorView> x = file->tensor("x");
  EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(x->data) % 4);
  EXPECT_EQ(2.5f, *static_cast<const float*>(x->data));
}

TEST_F(Safetensors, a_missing_tensor_is_answered_with_what_exists) {
  write_file(path("a"),
             file_bytes(R"({"tap.q":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1));
  const Result<SafetensorsFile> file = SafetensorsFile::open(path("a"));
  ASSERT_TRUE(file);
  EXPECT_TRUE(file->has("tap.q"));
  EXPECT_FALSE(file->has("tap.k"));
  EXPECT_EQ(
      "file '" + path("a") + "': has no tensor 'tap.k'; did you mean 'tap.q'? (it has: tap.q)",
      file->tensor("tap.k").error().message);
}

TEST_F(Safetensors, scalars_and_high_ranks_open_but_are_no_operands) {
  write_file(path("a"),
             file_bytes(R"({"s":{"dtype":"U8","shape":[],"data_offsets":[0,1]},)"
                        R"("r":{"dtype":"U8","shape":[1,1,1,1,1,1],"data_offsets":[1,2]}})",
                        2));
  const Result<SafetensorsFile> file = SafetensorsFile::open(path("a"));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_NE(std::string::npos,
            file->tensor("s").error().message.find("has rank 0 (accepted: 1..5)"));
  EXPECT_NE(std::string::npos,
            file->tensor("r").error().message.find("has rank 6 (accepted: 1..5)"));
}

TEST_F(Safetensors, files_that_cannot_be_read_say_why) {
  EXPECT_NE(std::string::npos, SafetensorsFile::open(path("absent"))
                                   .error()
                                   .message.find("cannot be opened: No such file or directory"));
  EXPECT_NE(std::string::npos,
            SafetensorsFile::open(folder_).error().message.find("is not a regular file"));
  write_file(path("empty"), "");
  EXPECT_NE(std::string::npos,
            SafetensorsFile::open(path("empty")).error().message.find("is empty"));
}

TEST_F(Safetensors, hostile_headers_are_refused_by_tensor_and_field) {
  struct Case {
    const char* what;
    std::string bytes;
  };
  const auto one = [](const char* fields, size_t data = 8) {
    return file_bytes(std::string(R"({"q":{)") + fields + "}}", data);
  };
  const auto two = [](const char* first, const char* second, size_t data = 8) {
    const auto entry = [](const char* name, const char* offsets) {
      return text::concat('"', name, R"(":{"dtype":"U8","shape":[4],"data_offsets":)", offsets,
                          '}');
    };
    return file_bytes(text::concat('{', entry("a", first), ',', entry("b", second), '}'), data);
  };
  const std::string good = R"({"q":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  std::string longer = file_bytes(good, 8);
  longer[3] = '\x10';
  std::string huge = file_bytes(good, 8);
  huge[7] = '\x80';
  const Case cases[] = {
      {"four bytes", std::string(4, '\0')},
      {"header cut off", file_bytes(good, 8).substr(0, 20)},
      {"header length beyond the file", longer},
      {"header length 2^63", huge},
      {"no header", file_bytes("", 0)},
      {"not an object", file_bytes("[]", 0)},
      {"blank before the header", file_bytes(" " + good, 8)},
      {"text after the header", file_bytes(good + "x", 8)},
      {"not closed", file_bytes(good.substr(0, good.size() - 1), 8)},
      {"trailing comma",
       file_bytes(R"({"q":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},})", 8)},
      {"bad UTF-8", file_bytes("{\"\xFF\":{}}", 0)},
      {"half a surrogate pair", file_bytes(R"({"\ud800":{}})", 0)},
      {"control character", file_bytes("{\"a\nb\":{}}", 0)},
      {"unknown escape", file_bytes(R"({"\x":{}})", 0)},
      {"entry is a number", file_bytes(R"({"q":1})", 0)},
      {"name twice", file_bytes(R"({"q":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                                R"("q":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                                8)},
      {"field twice", one(R"("dtype":"U8","dtype":"U8","shape":[8],"data_offsets":[0,8])")},
      {"unknown field", one(R"("dtype":"U8","shape":[8],"data_offsets":[0,8],"x":1)")},
      {"unknown dtype", one(R"("dtype":"F33","shape":[2],"data_offsets":[0,8])")},
      {"dtype is a number", one(R"("dtype":3,"shape":[2],"data_offsets":[0,8])")},
      {"no dtype", one(R"("shape":[2],"data_offsets":[0,8])")},
      {"no shape", one(R"("dtype":"F32","data_offsets":[0,8])")},
      {"no offsets", one(R"("dtype":"F32","shape":[2])")},
      {"shape is a number", one(R"("dtype":"F32","shape":2,"data_offsets":[0,8])")},
      {"negative size", one(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])")},
      {"fractional size", one(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])")},
      {"size as text", one(R"("dtype":"F32","shape":["2"],"data_offsets":[0,8])")},
      {"leading zero", one(R"("dtype":"F32","shape":[02],"data_offsets":[0,8])")},
      {"size 2^63", one(R"("dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8])")},
      {"shape overflows",
       one(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])")},
      {"shape overflows but for a 0",
       one(R"("dtype":"F32","shape":[4294967296,0,4294967296],"data_offsets":[0,0])", 0)},
      {"shape wraps to the right size",
       one(R"("dtype":"U8","shape":[8,2305843009213693953],"data_offsets":[0,8])")},
      {"one offset", one(R"("dtype":"F32","shape":[2],"data_offsets":[8])")},
      {"offsets swapped", one(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])")},
      {"offset beyond the data", one(R"("dtype":"F32","shape":[4],"data_offsets":[0,16])")},
      {"too many bytes", one(R"("dtype":"F32","shape":[1],"data_offsets":[0,8])")},
      {"too few bytes", one(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])")},
      {"overlap", two("[0,4]", "[3,7]")},
      {"same bytes", two("[0,4]", "[0,4]")},
      {"hole", two("[0,4]", "[5,9]", 9)},
      {"hole at the start", two("[1,5]", "[5,9]", 9)},
      {"hole at the end", two("[0,4]", "[4,8]", 9)},
      {"no tensors but data", file_bytes("{}", 3)},
      {"metadata is a number", file_bytes(R"({"__metadata__":1})", 0)},
      {"metadata value is a number", file_bytes(R"({"__metadata__":{"a":1}})", 0)},
      {"metadata key twice", file_bytes(R"({"__metadata__":{"a":"1","b":"","a":"2"}})", 0)},
      {"metadata twice", file_bytes(R"({"__metadata__":{},"__metadata__":{}})", 0)},
  };
  std::string report;
  for (const Case& c : cases) {
    const Result<SafetensorsHeader> header = parse(c.bytes);
    report += std::string(c.what) + "\n  " + (header ? "accepted" : header.error().message) + "\n";
    if (!header) {
      EXPECT_EQ(ErrorCode::invalid_file, header.error().code);
    }
  }
  golden::expect_equal("safetensors.txt", report);
}

TEST_F(Safetensors, every_cut_of_a_good_file_is_refused) {
  const std::string good = file_bytes(
      R"({"q":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"__metadata__":{"a":"b"}}  )", 8);
  ASSERT_TRUE(parse(good));
  for (size_t bytes = 0; bytes < good.size(); ++bytes)
    EXPECT_FALSE(parse(good.substr(0, bytes))) << bytes;
}

TEST_F(Safetensors, escapes_in_names_are_read) {
  const Result<SafetensorsHeader> header = parse(file_bytes(
      R"({"\u00e4\ud83d\ude00\/\n":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", 0));
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ("\xC3\xA4\xF0\x9F\x98\x80/\n", header->entries[0].name);
}

TEST_F(Safetensors, a_failed_write_leaves_what_was_there) {
  float data[1024] = {};
  const NamedTensor tensors[] = {{"x", make_view(data, kF32, {1024})}};
  write_file(path("a"), "precious");
  // The disk is full after 256 bytes.
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const rlimit limit{256, old.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  const Status status = write_safetensors(path("a"), tensors);
  setrlimit(RLIMIT_FSIZE, &old);
  ASSERT_FALSE(status);
  EXPECT_EQ(ErrorCode::invalid_file, status.error().code);
  EXPECT_NE(std::string::npos, status.error().message.find("cannot be written: File too large"));
  EXPECT_EQ("precious", read_file(path("a")));
  EXPECT_EQ(1, std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
}

TEST_F(Safetensors, writing_replaces_a_file_behind_a_link_and_keeps_its_rights) {
  float data[1] = {};
  const NamedTensor tensors[] = {{"x", make_view(data, kF32, {1})}};
  write_file(path("a"), "old");
  chmod(path("a").c_str(), 0640);
  fs::create_symlink(path("a"), path("link"));
  ASSERT_TRUE(write_safetensors(path("link"), tensors));
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_TRUE(SafetensorsFile::open(path("a")));
  struct stat status {};
  stat(path("a").c_str(), &status);
  EXPECT_EQ(0640u, status.st_mode & 0777);
}

TEST_F(Safetensors, a_device_is_written_to_not_replaced) {
  float data[1] = {};
  const NamedTensor tensors[] = {{"x", make_view(data, kF32, {1})}};
  ASSERT_TRUE(write_safetensors("/dev/null", tensors));
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(Safetensors, tensors_that_cannot_be_written_are_refused_by_name) {
  float data[4] = {};
  const auto error = [&](const NamedTensor& t) {
    const NamedTensor tensors[] = {{"x", make_view(data, kF32, {1})}, t};
    const Status status = write_safetensors(path("a"), tensors);
    EXPECT_FALSE(fs::exists(path("a")));
    return status ? "accepted" : status.error().message;
  };
  TensorView strided = make_view(data, kF32, {2, 1});
  strided.stride[0] = 2;
  EXPECT_EQ("writing tensor 'y' f32[2,1]: make it contiguous first", error({"y", strided}));
  EXPECT_EQ("writing tensor 'y' f32[1]: copy it to the CPU first",
            error({"y", make_view(data, kF32, {1}, {DeviceType::cuda, 0})}));
  EXPECT_EQ("writing tensor 'x' f32[1]: the name is given twice",
            error({"x", make_view(data, kF32, {1})}));
  EXPECT_EQ("writing tensor 'y' f32[]: it is absent", error({"y", {}}));
  EXPECT_EQ("writing tensor '__metadata__' f32[1]: a name is UTF-8 and not __metadata__",
            error({"__metadata__", make_view(data, kF32, {1})}));
}

}  // namespace
}  // namespace fovea
