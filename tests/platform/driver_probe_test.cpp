// Devices of other vendors as trees of files that a test lays out; the drivers themselves were
// never at hand.
#include "src/platform/driver_probe.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <map>
#include <string>

namespace fovea::platform {
namespace {

namespace fs = std::filesystem;

class DriverProbe : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) /
            ("fovea-driver-" +
             std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const std::string& file, const std::string& text) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  void pci(const std::string& folder, const char* vendor, const char* device, const char* kind) {
    write(folder + "/vendor", std::string(vendor) + "\n");
    write(folder + "/device", std::string(device) + "\n");
    write(folder + "/class", std::string(kind) + "\n");
  }
  std::vector<std::string> found(PlatformId platform, FindFunction find = {}) {
    if (!find) find = [](const char*, const char*) -> void* { return nullptr; };
    std::vector<std::string> texts;
    for (const DeviceFacts& facts : driver_devices(platform, {root_, std::move(find)})) {
      texts.push_back(facts.text());
      // What is probed could have been given.
      std::string given;
      for (const auto& [key, value] : facts.entries())
        given += (given.empty() ? "" : ",") + key + '=' + value;
      const Result<DeviceFacts> read = parse_facts(platform, given);
      EXPECT_TRUE(read) << read.error().message;
      if (read) {
        EXPECT_EQ(*read, facts);
      }
    }
    return texts;
  }

  fs::path root_;
};

using Texts = std::vector<std::string>;

TEST_F(DriverProbe, AnEmptyMachineHasNothing) {
  for (const PlatformId platform : {PlatformId::rocm, PlatformId::npu, PlatformId::xpu,
                                    PlatformId::musa, PlatformId::cpu, PlatformId::cuda})
    EXPECT_EQ(found(platform), Texts{}) << name(platform);
  root_ /= "nowhere";
  EXPECT_EQ(found(PlatformId::rocm), Texts{});
}

TEST_F(DriverProbe, TheNameOfAnAmdArchitecture) {
  const std::pair<int64_t, const char*> cases[] = {
      {90402, "gfx942"},   {90500, "gfx950"},   {90010, "gfx90a"}, {90006, "gfx906"},
      {100300, "gfx1030"}, {110000, "gfx1100"}, {0, ""},           {-1, ""}};
  for (const auto& [version, name] : cases) EXPECT_EQ(gfx_name(version), name);
}

TEST_F(DriverProbe, RocmNodesOfTheKernel) {
  const std::string nodes = "sys/class/kfd/kfd/topology/nodes/";
  write(nodes + "0/properties", "cpu_cores_count 96\nsimd_count 0\ngfx_target_version 0\n");
  write(nodes + "10/properties", "simd_count 1024\ngfx_target_version 90500\n");
  write(nodes + "2/properties",
        "simd_count 1216\ndrm_render_minor 128\ngfx_target_version 90402\nlds_size 64\n");
  write(nodes + "3/properties", "gfx_target_version many\n");
  write(nodes + "4/name", "no properties\n");
  write(nodes + "other/properties", "gfx_target_version 90402\n");
  write("sys/class/drm/renderD128/device/product_name", "AMD Instinct, MI300X\n");
  EXPECT_EQ(found(PlatformId::rocm),
            (Texts{"rocm: gfx=gfx942,name=AMD Instinct  MI300X", "rocm: gfx=gfx950"}));
  write("sys/module/amdgpu/version", "6.12.12\n");
  EXPECT_EQ(found(PlatformId::rocm)[1], "rocm: driver=6.12.12,gfx=gfx950");
}

TEST_F(DriverProbe, NpuDeviceFiles) {
  write("dev/davinci_manager", "");
  pci("sys/bus/pci/devices/0000:c1:00.0", "0x19e5", "0xd802", "0x120000");
  pci("sys/bus/pci/devices/0000:01:00.0", "0x19e5", "0x0222", "0x020000");  // a network card
  EXPECT_EQ(found(PlatformId::npu), Texts{});
  write("dev/davinci1", "");
  write("dev/davinci0", "");
  EXPECT_EQ(found(PlatformId::npu), (Texts{"npu: name=Huawei accelerator 19e5:d802",
                                           "npu: name=Huawei accelerator 19e5:d802"}));
  write("usr/local/Ascend/driver/version.info", "Version=25.0.rc1\nascendhal_version=7.35\n");
  EXPECT_EQ(found(PlatformId::npu)[0], "npu: driver=25.0.rc1,name=Huawei accelerator 19e5:d802");
  // In a container that shows the device file alone.
  fs::remove_all(root_ / "sys");
  EXPECT_EQ(found(PlatformId::npu)[0], "npu: driver=25.0.rc1");
}

TEST_F(DriverProbe, XpuRenderNodes) {
  pci("sys/class/drm/renderD129/device", "0x8086", "0x0bd5", "0x038000");
  pci("sys/class/drm/renderD128/device", "0x8086", "0xe20b", "0x030000");
  pci("sys/class/drm/renderD130/device", "0x1002", "0x74a1", "0x120000");
  pci("sys/class/drm/card0/device", "0x8086", "0xe20b", "0x030000");
  pci("sys/class/drm/renderD131/device", "8086", "0x0bd5", "0x038000");  // no such form
  EXPECT_EQ(found(PlatformId::xpu),
            (Texts{"xpu: name=Intel GPU 8086:e20b",
                   "xpu: arch=13136561920,name=Intel Data Center GPU Max 8086:0bd5"}));
}

// A runtime of two devices. `failing` names a function that reports an error, or is not there when
// it starts with '-'.
FindFunction runtime(std::string failing = {}) {
  static std::string fails;
  fails = std::move(failing);
  return [](const char* library, const char* function) -> void* {
    EXPECT_STREQ(library, "libmusa.so");
    static const std::map<std::string, void*> table{
        {"muInit", reinterpret_cast<void*>(+[](unsigned) { return fails == "muInit" ? 1 : 0; })},
        {"muDeviceGetCount", reinterpret_cast<void*>(+[](int* count) {
           *count = 2;
           return fails == "muDeviceGetCount" ? 1 : 0;
         })},
        {"muDeviceGet", reinterpret_cast<void*>(+[](int* device, int index) {
           *device = 40 + index;
           return fails == "muDeviceGet" ? 1 : 0;
         })},
        {"muDeviceGetName", reinterpret_cast<void*>(+[](char* name, int size, int device) {
           std::strncpy(name, device == 40 ? "MTT S5000" : "MTT S4000", static_cast<size_t>(size));
           return fails == "muDeviceGetName" ? 1 : 0;
         })},
        {"muDeviceComputeCapability",
         reinterpret_cast<void*>(+[](int* major, int* minor, int device) {
           *major = device == 40 ? 3 : 2;
           *minor = device == 40 ? 1 : 2;
           return fails == "muDeviceComputeCapability" ? 1 : 0;
         })},
    };
    const auto entry = table.find(function);
    return entry == table.end() || fails == std::string("-") + function ? nullptr : entry->second;
  };
}

TEST_F(DriverProbe, MusaRuntimeWhereTheBusShowsACard) {
  EXPECT_EQ(found(PlatformId::musa, runtime()), Texts{});  // no card: nothing is loaded
  pci("sys/bus/pci/devices/0000:41:00.0", "0x1ed5", "0x0400", "0x030000");
  pci("sys/bus/pci/devices/0000:41:00.1", "0x1ed5", "0x04ff", "0x040300");  // its sound device
  EXPECT_EQ(found(PlatformId::musa, runtime()),
            (Texts{"musa: cc=3.1,name=MTT S5000", "musa: cc=2.2,name=MTT S4000"}));
  write("sys/module/mtgpu/version", "3.3.0\n");
  EXPECT_EQ(found(PlatformId::musa, runtime("muDeviceGetName")),
            (Texts{"musa: cc=3.1,driver=3.3.0", "musa: cc=2.2,driver=3.3.0"}));
  for (const char* failing : {"muInit", "muDeviceGetCount", "muDeviceGet", "-muInit",
                              "muDeviceComputeCapability", "-muDeviceComputeCapability"})
    EXPECT_EQ(found(PlatformId::musa, runtime(failing)),
              Texts{"musa: driver=3.3.0,name=Moore Threads GPU 1ed5:0400"})
        << failing;
}

TEST(ProbeDevice, ADeviceThatIsNotThereIsAnErrorThatSaysWhere) {
  for (const PlatformId platform :
       {PlatformId::rocm, PlatformId::npu, PlatformId::xpu, PlatformId::musa}) {
    const Result<DeviceFacts> facts = probe_device(platform, 4096);
    ASSERT_FALSE(facts);
    EXPECT_EQ(facts.error().code, ErrorCode::device_error);
    EXPECT_EQ(facts.error().message, "this machine has no " + std::string(name(platform)) +
                                         ":4096 (looked at " + std::string(looked_at(platform)) +
                                         ")");
    EXPECT_FALSE(probe_device(platform, -1));
  }
  EXPECT_FALSE(probe_device(PlatformId::cpu, 1));
  EXPECT_EQ(probe_device(PlatformId::cpu, 0).value(), probe_cpu().value());
}

}  // namespace
}  // namespace fovea::platform
