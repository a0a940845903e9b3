// fovea version: what this binary is.
#include "fovea/version.hpp"

#include "src/core/build_info.hpp"
#include "tools/fovea/json.hpp"
#include "tools/fovea/verb.hpp"

namespace fovea::cli {

namespace {

class VersionVerb : public Verb {
 public:
  void declare(Flags&) override {}

  Result<ExitCode> execute(const Invocation& invocation) override {
    const BuildInfo& info = build_info();
    const std::vector<std::pair<std::string, std::string_view>> members = {
        {"version", info.version},
        {"compiler", info.compiler},
        {"build_type", info.build_type},
        {"sanitizer", info.sanitizer},
        {"cuda", info.cuda},
        {"cuda_embedded", info.cuda_embedded},
        {"cudnn", info.cudnn},
        {"nccl", info.nccl},
        {"mpi", info.mpi}};
    Table csv;
    Fields fields;
    JsonMembers json = {{"schema", text_json("fovea.version/1")}};
    csv.rows.emplace_back();
    for (const auto& [name, value] : members) {
      csv.columns.push_back(name);
      csv.rows[0].push_back(std::string(value));
      fields.emplace_back(name, value.empty() ? std::string("none") : std::string(value));
      json.emplace_back(name, value.empty() ? "null" : text_json(value));
    }
    switch (invocation.format) {
      case Format::json:
        invocation.terminal.write(object_json(json));
        break;
      case Format::csv:
        invocation.terminal.write(to_csv(csv));
        break;
      case Format::table:
        invocation.terminal.write(invocation.terminal.aligned(fields));
        break;
    }
    return kOk;
  }
};

}  // namespace

std::unique_ptr<Verb> make_version() { return std::make_unique<VersionVerb>(); }

}  // namespace fovea::cli
