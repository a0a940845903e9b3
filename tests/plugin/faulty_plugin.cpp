// A plugin that misbehaves. At load: as the name of its file says, "NAME.so". At run: as the
// backend behind "#NAME" does.
#include <dlfcn.h>

#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>

#include "fovea/plugin.h"

namespace {

std::string own_case() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&fovea_plugin_entry), &info) == 0) return {};
  std::string file = info.dli_fname;
  file = file.substr(file.rfind('/') + 1);
  if (file.rfind("libfovea-backend-", 0) == 0) file = file.substr(17);
  return file.substr(0, file.rfind('.'));
}

// What `self` points to: the fault.
bool is(void* self, const char* fault) { return std::strcmp(static_cast<char*>(self), fault) == 0; }

int plan_marker = 0;
std::string told;
int released = 0;

int32_t resolve(void* self, const fovea_plugin_problem*, const fovea_plugin_context* context,
                fovea_plugin_report* report, const fovea_plugin_sink* sink) {
  if (is(self, "resolve_throws")) throw std::runtime_error("out of coffee");
  if (is(self, "resolve_throws_number")) throw 42;
  if (is(self, "resolve_code")) {
    sink->set_message(sink, "the licence expired");
    return 202;
  }
  if (is(self, "resolve_unknown_code")) return 12345;
  if (is(self, "no_reason")) return FOVEA_OK;
  report->support = FOVEA_UNMIGRATED;
  if (is(self, "supported")) report->support = FOVEA_SUPPORTED;
  if (is(self, "support_range")) report->support = 9;
  if (is(self, "mode_range")) report->compilation_mode = -1;
  if (is(self, "density_range")) {
    report->has_density = 1;
    report->density = std::numeric_limits<double>::quiet_NaN();
  }
  if (is(self, "report_workspace")) report->workspace_bytes = UINT64_MAX;
  if (is(self, "not_utf8")) report->path = "cpu.\xff";
  if (is(self, "tells_skip")) {
    const char* state = context->skip_softmax;
    told = state == nullptr ? "nothing" : state + ("/" + std::to_string(context->skip_factor));
    report->path = told.c_str();
  }
  fovea_plugin_reason reason{sizeof reason, "head_dim", "head_dim", "80", "64", "pad it"};
  if (is(self, "unknown_reason")) reason.code = "phase_of_moon";
  if (is(self, "reason_null_strings"))
    reason = {sizeof reason, nullptr, nullptr, nullptr, nullptr, nullptr};
  if (is(self, "reason_size")) reason.struct_size = 3;
  if (is(self, "reason_old")) reason.struct_size = offsetof(fovea_plugin_reason, accepted);
  if (is(self, "null_reason")) {
    report->support = FOVEA_UNSUPPORTED;
    sink->add_reason(sink, nullptr);
  }
  if (is(self, "many_reasons") || is(self, "refuses") || is(self, "unknown_reason") ||
      is(self, "reason_null_strings") || is(self, "reason_size") || is(self, "reason_old")) {
    report->support = FOVEA_UNSUPPORTED;
    const int count = is(self, "many_reasons") ? 100000 : 1;
    for (int i = 0; i < count; ++i) sink->add_reason(sink, &reason);
  }
  return FOVEA_OK;
}

int32_t plan(void* self, const fovea_plugin_problem*, const fovea_plugin_context*, void** plan,
             const fovea_plugin_sink* sink) {
  if (is(self, "plan_throws")) throw std::runtime_error("no plan");
  if (is(self, "plan_null")) return FOVEA_OK;
  if (is(self, "plan_code")) {
    sink->set_message(sink, "no room");
    return 400;
  }
  *plan = &plan_marker;
  return FOVEA_OK;
}

uint64_t workspace_bytes(void* self, const void*) {
  if (is(self, "workspace_throws")) throw std::runtime_error("no size");
  return is(self, "workspace_size") ? UINT64_MAX : 0;
}

void fail_task(void*, int64_t index, int32_t) {
  if (index == 3) throw std::runtime_error("task");
}

int32_t run(void* self, const void*, const fovea_plugin_run* call, const fovea_plugin_sink* sink) {
  if (is(self, "run_throws")) throw std::runtime_error("midway");
  if (is(self, "task_throws")) call->parallel_for(call, 8, fail_task, nullptr);
  if (is(self, "run_code")) {
    sink->set_message(sink, "the device is gone");
    return 300;
  }
  if (is(self, "run_unknown_code")) return -77;
  return FOVEA_OK;
}

void release(void* self, void*) {
  ++released;
  if (is(self, "release_throws")) throw std::runtime_error("kept");
}

constexpr const char* kFaults[] = {
    "resolve_throws",
    "resolve_throws_number",
    "resolve_code",
    "resolve_unknown_code",
    "no_reason",
    "supported",
    "support_range",
    "mode_range",
    "density_range",
    "report_workspace",
    "not_utf8",
    "unknown_reason",
    "reason_size",
    "reason_old",
    "reason_null_strings",
    "null_reason",
    "many_reasons",
    "refuses",
    "plan_throws",
    "plan_null",
    "plan_code",
    "workspace_throws",
    "workspace_size",
    "run_throws",
    "task_throws",
    "run_code",
    "run_unknown_code",
    "release_throws",
    "tells_skip",
};
constexpr size_t kCount = sizeof kFaults / sizeof kFaults[0];

// A later version of the struct, with fields that this library does not know.
struct NewerBackend {
  fovea_plugin_backend known;
  void* unknown[4];
};

// As the fact "mood" says.
int32_t judge(void*, const char*, const fovea_plugin_policy_query* query,
              const fovea_plugin_sink* sink) {
  const std::string facts = query->facts;
  const auto mood = [&](const char* text) { return facts.find(text) != std::string::npos; };
  if (mood("mood=throws")) throw std::runtime_error("no opinion");
  if (mood("mood=code")) return 77;
  if (mood("mood=null_reason")) sink->add_reason(sink, nullptr);
  return FOVEA_OK;
}

fovea_plugin_option option;
const fovea_plugin_option* options[] = {&option};
const char* choices[] = {"a", nullptr};
fovea_plugin_fact fact;
const fovea_plugin_fact* facts[] = {&fact};
const char* order[] = {"TORCH_SDPA"};
fovea_plugin_platform platform;
const fovea_plugin_platform* platforms[] = {&platform};

// One backend with an option, wrong as `fault` says.
void add_options(const std::string& fault, fovea_plugin_backend& backend) {
  option = {sizeof option, "width", FOVEA_OPTION_INTEGER, 1, 1, 1, 8, 0, nullptr, "2", "a width"};
  backend.backend_name = "FAULTY_ATTN";
  backend.option_count = 1;
  backend.options = options;
  if (fault == "options_count") backend.option_count = SIZE_MAX;
  if (fault == "options_null") backend.options = nullptr;
  if (fault == "option_null") options[0] = nullptr;
  if (fault == "option_small") option.struct_size = 8;
  if (fault == "option_type") option.type = 7;
  if (fault == "option_name") option.name = "Width!";
  if (fault == "option_range") option.minimum = 9;
  if (fault == "option_nameless") backend.backend_name = nullptr;
  if (fault == "option_choices") {
    option.type = FOVEA_OPTION_CHOICE;
    option.choice_count = 2;
    option.choices = choices;
  }
}

// A platform, wrong as `fault` says.
void add_platform(const std::string& fault, fovea_plugin& plugin) {
  fact = {sizeof fact, "mood", FOVEA_FACT_TEXT, 0, "how it feels"};
  platform = {sizeof platform,
              FOVEA_PLUGIN_ABI_MAJOR,
              FOVEA_PLUGIN_ABI_MINOR,
              nullptr,
              "faulty_platform",
              "misbehaves",
              1,
              1,
              facts,
              1,
              order,
              judge};
  plugin.platform_count = 1;
  plugin.platforms = platforms;
  if (fault == "platforms_count") plugin.platform_count = SIZE_MAX;
  if (fault == "platforms_null") plugin.platforms = nullptr;
  if (fault == "platform_null") platforms[0] = nullptr;
  if (fault == "platform_small") platform.struct_size = 24;
  if (fault == "platform_major") platform.abi_major = 9, platform.abi_minor = 0;
  if (fault == "platform_name_null") platform.name = nullptr;
  if (fault == "platform_name") platform.name = "No Name";
  if (fault == "platform_builtin") platform.name = "cuda";
  if (fault == "platform_device") platform.device_type = 99;
  if (fault == "platform_facts") platform.fact_count = SIZE_MAX;
  if (fault == "platform_facts_null") platform.facts = nullptr;
  if (fault == "platform_fact_type") fact.type = -1;
  if (fault == "platform_order") platform.order_count = 0;
  if (fault == "platform_order_null") order[0] = nullptr;
  if (fault == "platform_order_name") order[0] = "NO_SUCH_ATTN";
  if (fault == "platform_judge") platform.judge = nullptr;
}

int32_t kernel(void*, const fovea_package_call*, const fovea_plugin_sink*) { return 300; }

fovea_package package;
const fovea_package* packages[] = {&package};

// The kernel of a package, wrong as `fault` says.
void add_package(const std::string& fault, fovea_plugin& plugin) {
  package = {};
  package.struct_size = sizeof package;
  package.package = "faulty_package";
  package.run = kernel;
  plugin.package_count = 1;
  plugin.packages = packages;
  if (fault == "packages_count") plugin.package_count = SIZE_MAX;
  if (fault == "packages_null") plugin.packages = nullptr;
  if (fault == "package_null") packages[0] = nullptr;
  if (fault == "package_small") package.struct_size = 16;
  if (fault == "package_nameless") package.package = nullptr;
  if (fault == "package_run") package.run = nullptr;
  if (fault == "package_record") package.validation_record = "no/such/record.json";
}

// --- Access to devices of the platform "musa", wrong as `access_fault` says.

std::string access_fault;

int32_t describe(void*, int32_t, fovea_device_info* info, const fovea_plugin_sink* sink) {
  if (access_fault == "access_describe_throws") throw std::runtime_error("no device");
  if (access_fault == "access_describe_code") {
    sink->set_message(sink, "the driver is gone");
    return 300;
  }
  if (access_fault == "access_describe_nothing") return FOVEA_OK;
  info->facts = access_fault == "access_bad_facts" ? "colour=red" : "cc=3.1,flash_attn=2.8";
  info->device_type = access_fault == "access_device_type" ? 77 : 12;
  return FOVEA_OK;
}
int32_t allocate(void*, int32_t, uint64_t, void** memory, const fovea_plugin_sink*) {
  if (access_fault == "access_allocate_throws") throw 42;
  if (access_fault == "access_allocate_null") return FOVEA_OK;
  *memory = nullptr;
  return 400;
}
void free_memory(void*, int32_t, void*) {}
int32_t copy(void*, int32_t, void*, const void*, uint64_t, int32_t, const fovea_plugin_sink*) {
  return 300;
}
int32_t synchronise(void*, int32_t, const fovea_plugin_sink*) { return 300; }
int32_t replay(void*, int32_t, void*, const fovea_plugin_sink*) { return 300; }

fovea_device_access device_access;
const fovea_device_access* accesses[] = {&device_access};

void add_access(const std::string& fault, fovea_plugin& plugin) {
  access_fault = fault;
  device_access = {};
  device_access.struct_size = sizeof device_access;
  device_access.abi_major = FOVEA_PLUGIN_ABI_MAJOR;
  device_access.abi_minor = FOVEA_PLUGIN_ABI_MINOR;
  device_access.platform = "musa";
  device_access.describe = describe;
  device_access.allocate = allocate;
  device_access.release = free_memory;
  device_access.copy = copy;
  device_access.synchronise = synchronise;
  plugin.access_count = 1;
  plugin.accesses = accesses;
  if (fault == "accesses_count") plugin.access_count = 9;
  if (fault == "accesses_null") plugin.accesses = nullptr;
  if (fault == "access_null") accesses[0] = nullptr;
  if (fault == "access_small") device_access.struct_size = 24;
  if (fault == "access_major") device_access.abi_major = 3;
  if (fault == "access_platform_null") device_access.platform = nullptr;
  if (fault == "access_platform") device_access.platform = "abacus";
  if (fault == "access_no_copy") device_access.copy = nullptr;
  if (fault == "access_half_capture") device_access.replay = replay;
}

NewerBackend backends[kCount];
const fovea_plugin_backend* list[kCount];
fovea_plugin description;

}  // namespace

extern "C" int32_t fovea_plugin_entry(const fovea_plugin_host*, const fovea_plugin** plugin,
                                      const fovea_plugin_sink* sink) {
  const std::string fault = own_case();
  if (fault == "entry_throws") throw std::runtime_error("not today");
  if (fault == "refuses_to_load") {
    sink->set_message(sink, "needs a newer driver");
    return 300;
  }
  if (fault == "null_description") return FOVEA_OK;
  for (size_t i = 0; i < kCount; ++i) {
    backends[i].known = {sizeof(fovea_plugin_backend),
                         FOVEA_PLUGIN_ABI_MAJOR,
                         FOVEA_PLUGIN_ABI_MINOR,
                         const_cast<char*>(kFaults[i]),
                         kFaults[i],
                         nullptr,
                         resolve,
                         plan,
                         run,
                         release,
                         workspace_bytes,
                         std::strcmp(kFaults[i], "tells_skip") == 0,
                         0,
                         nullptr};
    list[i] = &backends[i].known;
  }
  description = {sizeof description,
                 FOVEA_PLUGIN_ABI_MAJOR,
                 FOVEA_PLUGIN_ABI_MINOR,
                 "faulty",
                 "0.1",
                 kCount,
                 list,
                 0,
                 nullptr,
                 0,
                 nullptr,
                 0,
                 nullptr};
  fovea_plugin_backend& first = backends[0].known;
  if (fault == "other_major") description.abi_major = 2;
  if (fault == "newer_minor") description.abi_minor = 9;
  if (fault == "older_minor") {
    // As 1.1 ended: what lies behind is not read.
    description.abi_minor = 1;
    description.struct_size = offsetof(fovea_plugin, package_count);
    description.package_count = description.access_count = SIZE_MAX;
  }
  if (fault == "description_small") description.struct_size = 8;
  if (fault == "description_old") description.struct_size = offsetof(fovea_plugin, backends);
  if (fault == "description_huge") description.struct_size = SIZE_MAX;
  if (fault == "no_backends") description.backend_count = 0;
  if (fault == "too_many_backends") description.backend_count = SIZE_MAX;
  if (fault == "null_list") description.backends = nullptr;
  if (fault == "null_backend") list[3] = nullptr;
  if (fault == "null_texts") description.name = description.version = nullptr;
  if (fault == "backend_other_major") first.abi_major = 7;
  if (fault == "backend_small") first.struct_size = offsetof(fovea_plugin_backend, run);
  if (fault == "backend_old") {
    // 1.0 ended at run, as if release, workspace_bytes and reads_options had come later.
    for (NewerBackend& b : backends) b.known.struct_size = offsetof(fovea_plugin_backend, release);
  }
  if (fault == "backend_newer")
    for (NewerBackend& b : backends) b.known.struct_size = sizeof(NewerBackend);
  if (fault == "null_name") first.name = nullptr;
  if (fault == "bad_name") first.name = "a#b";
  if (fault == "same_name") first.name = kFaults[1];
  if (fault == "null_resolve") first.resolve = nullptr;
  if (fault == "null_plan") first.plan = nullptr;
  if (fault == "null_run") first.run = nullptr;
  if (fault == "bad_backend_name") {
    first.backend_name = "NEW_FAULTY_ATTN";
    backends[1].known.backend_name = "lower case";
  }
  if (fault == "alias_name") first.backend_name = "SDPA";
  if (fault.rfind("option", 0) == 0) add_options(fault, first);
  if (fault.rfind("platform", 0) == 0) add_platform(fault, description);
  if (fault.rfind("package", 0) == 0) add_package(fault, description);
  if (fault.rfind("access", 0) == 0) add_access(fault, description);
  *plugin = &description;
  return FOVEA_OK;
}

extern "C" __attribute__((visibility("default"))) int faulty_released() { return released; }
