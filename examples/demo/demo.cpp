// The main job: attention inputs captured from blocks of Wan, Qwen-Image and Z-Image run through
// one configuration with an entry per role.
//
//   fovea_demo examples/demo/attention.json examples/data attention.svg
#include <cstdio>
#include <string>
#include <vector>

#include "examples/demo/attention_map.hpp"
#include "examples/demo/picture.hpp"
#include "fovea/fovea.hpp"
#include "src/core/text.hpp"
#include "src/core/tolerance.hpp"
#include "tools/fovea/layer_run.hpp"
#include "tools/fovea/report_table.hpp"
#include "tools/fovea/svg.hpp"
#include "tools/fovea/tensors.hpp"
#include "tools/fovea/terminal.hpp"

namespace fovea::demo {

namespace {

constexpr int64_t kRepeat = 20;

// One captured call and how to label it.
struct Capture {
  std::string title;
  std::string subtitle;
  std::string file;
  std::string prefix;
  std::string role;
  std::string category;
  int64_t shown_item;  // of the batch, in the picture
  std::vector<Segment> rows;
  std::vector<Segment> columns;
};

std::vector<Capture> captures() {
  const std::vector<Segment> frames = {{"frame 1", 30}, {"2", 30}, {"3", 30}, {"4", 30}, {"5", 30}};
  const std::vector<Segment> joint = {{"text", 19}, {"image", 60}};
  const std::vector<Segment> stream = {{"image", 32}, {"text", 32}};
  return {
      {"Wan, self-attention", "150 video tokens: 5 frames of 30", "wan_t2v_attention.safetensors",
       "tap.attn.0.", "wan.self", "self", 0, frames, frames},
      {"Wan, cross-attention",
       "150 video tokens read 20 text tokens",
       "wan_t2v_attention.safetensors",
       "tap.attn.1.",
       "wan.cross.text",
       "cross",
       0,
       frames,
       {{"text", 20}}},
      {"Qwen-Image, joint attention", "19 text (8 padding) + 60 image tokens",
       "qwen_image_attention.safetensors", "tap.attn.0.", "qwen.joint", "joint", 1, joint, joint},
      {"Z-Image, joint attention", "32 image + 32 text tokens, one stream",
       "z_image_attention.safetensors", "tap.attn.2.", "zimage.joint", "joint", 0, stream, stream},
  };
}

struct Outcome {
  cli::RunReport report;
  Panel panel;
};

std::string note_of(const cli::RunReport& report) {
  const Receipt& receipt = *report.receipt;
  if (receipt.fallback) return name(receipt.fallback->from) + " preferred, cannot run here";
  const std::string prefix = "attention_config.";
  const size_t at = report.source.find(prefix);
  return "by " +
         (at == std::string::npos ? report.source : report.source.substr(at + prefix.size()));
}

Result<Outcome> run_capture(const Capture& capture, const AttentionConfig& config,
                            const std::string& folder, Executor& executor) {
  const std::string path = folder + "/" + capture.file;
  FOVEA_TRY(const SafetensorsFile file, SafetensorsFile::open(path));
  cli::LayerRun run;
  run.config = config;
  run.layer.role = capture.role;
  run.layer.category = capture.category;
  FOVEA_TRY(run.tensors, cli::attention_inputs(file, path, capture.prefix));
  FOVEA_TRY(const cli::CallOutputs outputs, cli::allocate_outputs(run.tensors, run.options));
  outputs.place(run.tensors);
  run.executor = &executor;
  run.repeat = kRepeat;
  Outcome outcome;
  FOVEA_TRY(outcome.report, cli::run_layer(run));
  FOVEA_TRY(const TensorView expected, file.tensor(capture.prefix + "out"));
  const Comparison comparison = compare(run.tensors.out, expected);
  cli::RunReport& report = outcome.report;
  report.compare = cli::comparison_report(capture.prefix + "out", comparison, kParityRelL2,
                                          within(comparison, kParityRelL2));

  Panel& panel = outcome.panel;
  panel.title = capture.title;
  panel.subtitle = capture.subtitle;
  panel.backend = name(report.receipt->backend);
  panel.path = report.receipt->path;
  panel.note = note_of(report);
  panel.map = attention_map(run.tensors, capture.shown_item);
  panel.map.row_segments = capture.rows;
  panel.map.column_segments = capture.columns;
  panel.rel_l2 = comparison.rel_l2;
  panel.tolerance = kParityRelL2;
  panel.pass = report.compare->pass;
  panel.timing = report.timing;
  panel.tflops = report.tflops;
  return outcome;
}

void print_selection(const cli::Terminal& terminal, const std::vector<Outcome>& outcomes) {
  cli::Table table{{"role", "category", "backend", "chosen by", "strictness"}, {}};
  for (const Outcome& outcome : outcomes) {
    const cli::RunReport& report = outcome.report;
    table.rows.push_back({report.role,
                          report.category,
                          {name(report.receipt->backend), cli::Colour::strong},
                          report.source,
                          report.strictness ? std::string(name(*report.strictness)) : "-"});
  }
  terminal.write("Selection\n" + terminal.aligned(table) + "\n");
}

void print_receipts(const cli::Terminal& terminal, const std::vector<Outcome>& outcomes) {
  terminal.write("Receipts\n");
  cli::Fields fields;
  for (const Outcome& outcome : outcomes) {
    const Receipt& receipt = *outcome.report.receipt;
    fields.emplace_back(outcome.report.role, cli::receipt_line(receipt));
    if (receipt.fallback) {
      fields.emplace_back(
          "", cli::Table::Cell(text::concat("fallback from ", name(receipt.fallback->from), ": ",
                                            sentence(receipt.fallback->reasons)),
                               cli::Colour::warn));
    }
  }
  terminal.write(terminal.aligned(fields) + "\n");
}

void print_agreement(const cli::Terminal& terminal, const std::vector<Outcome>& outcomes) {
  cli::Table table{{"role", "problem", "rel_l2", "limit", "max_abs", "time", "speed", "result"},
                   {}};
  for (const Outcome& outcome : outcomes) {
    const cli::RunReport& report = outcome.report;
    const cli::ComparisonReport& compare = *report.compare;
    table.rows.push_back(
        {report.role,
         to_string(report.problem),
         cli::scientific(compare.rel_l2),
         cli::scientific(compare.tolerance),
         cli::scientific(compare.max_abs),
         cli::duration(report.timing.median_ms),
         cli::flop_rate(report.tflops),
         {compare.pass ? "pass" : "FAIL", compare.pass ? cli::Colour::good : cli::Colour::bad}});
  }
  terminal.write("Agreement with the models' own output, and time of one call\n" +
                 terminal.aligned(table) + "\n");
}

Result<bool> demo(const std::string& config_file, const std::string& data_folder,
                  const std::string& picture_file) {
  ConfigSources sources;
  FOVEA_TRY(sources.text, read_config_argument(config_file));
  sources.origin = config_file;
  FOVEA_TRY(const AttentionConfig config, build_config(sources));
  const std::unique_ptr<Executor> executor = make_openmp_executor();
  std::vector<Outcome> outcomes;
  std::vector<Panel> panels;
  bool pass = true;
  for (const Capture& capture : captures()) {
    FOVEA_TRY(Outcome outcome, run_capture(capture, config, data_folder, *executor));
    pass = pass && outcome.panel.pass;
    panels.push_back(outcome.panel);
    outcomes.push_back(std::move(outcome));
  }
  const cli::Terminal terminal;
  terminal.write("Configuration " + config_file + "\n" + sources.text + "\n");
  print_selection(terminal, outcomes);
  print_receipts(terminal, outcomes);
  print_agreement(terminal, outcomes);
  const int threads = executor->workers();
  const std::string subtitle = text::concat(
      "Attention captured from small Wan, Qwen-Image and Z-Image transformers with random weights, "
      "one configuration for all roles, on this CPU (",
      outcomes.front().report.receipt->isa, ", ", threads, threads == 1 ? " thread)" : " threads)");
  FOVEA_CHECK(svg::save(picture_file, draw(panels, subtitle)));
  terminal.write("Picture: " + picture_file + "\n");
  return pass;
}

}  // namespace

}  // namespace fovea::demo

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("usage: fovea_demo CONFIG.json DATA_FOLDER PICTURE.svg\n", stderr);
    return 2;
  }
  const fovea::Result<bool> pass = fovea::demo::demo(argv[1], argv[2], argv[3]);
  if (!pass) {
    std::fprintf(stderr, "error: %s\n", pass.error().message.c_str());
    return 2;
  }
  return *pass ? 0 : 1;
}
