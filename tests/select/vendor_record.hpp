// Records of validation runs that never took place, for tests of what a record does.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "fovea/validation.hpp"
#include "fovea/version.hpp"

namespace fovea::test {

struct VendorRecord {
  std::string backend = "FLASH_ATTN";
  std::string provider = "package fa4 4.0.0b18";
  std::string platform = "cuda";
  std::string device_class = "sm_103";
  std::string path = "fa4_dense";
  std::vector<std::string> kinds = {"dense", "unequal lengths", "replay"};
  std::vector<std::string> heads = {"d32", "d64", "d80 dv=48", "d192 dv=128", "d256"};
  std::string driver = "580.1";
  std::string fovea = version();
  bool pass = true;
  bool captured = true;

  std::string text() const {
    const auto member = [](const char* key, const std::string& value) {
      return std::string("\"") + key + "\":\"" + value + "\",";
    };
    std::string out = "{" + member("schema", "fovea.validation/1") + member("backend", backend) +
                      member("provider", provider) + member("library", provider) +
                      member("platform", platform) + member("device_class", device_class) +
                      member("path", path) + member("device", "a device") +
                      member("driver", driver) + member("compiler", "GNU 12") +
                      member("fovea", fovea) + member("date", "2026-11-30");
    out += "\"atol\":0.01,\"rtol\":0.01,\"captured\":" + flag(captured) +
           ",\"pass\":" + flag(pass) + ",\"cases\":[";
    std::string cases;
    for (const std::string& kind : kinds)
      for (const std::string& head : heads)
        cases += std::string(cases.empty() ? "" : ",") + "{" + member("kind", kind) +
                 member("problem", "bf16 b1 h2 s8 " + head) + member("path", path) +
                 "\"ran\":true,\"outside\":0,\"pass\":" + flag(pass) + "}";
    return out + cases + "]}";
  }

  std::shared_ptr<const ValidationFile> file() const {
    auto parsed = ValidationFile::parse(text(), "a test's record");
    EXPECT_TRUE(parsed.has_value()) << (parsed ? "" : parsed.error().message);
    return parsed ? *parsed : nullptr;
  }

 private:
  static std::string flag(bool value) { return value ? "true" : "false"; }
};

}  // namespace fovea::test
