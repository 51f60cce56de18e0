#include "tools/simulate/simulate.h"

#include <fmt/format.h>

#include <cstring>
#include <fstream>

#include <coshard/runtime/error.h>
#include "profiling/json.h"
#include "profiling/output_file.h"
#include "tools/simulate/models.h"
#include "tools/simulate/report.h"
#include "tools/simulate/search.h"

namespace coshard::tools {
namespace {

// Figures in place of names: two files may have one name, and one file several.
std::string model_text(const nn::CausalLMConfig& of) {
  return fmt::format(
      "layers={},dim={},heads={},kv_heads={},head_dim={},ffn={},vocab={},attention_bias={},"
      "mlp_bias={},tied={}",
      of.num_hidden_layers, of.hidden_size, of.num_attention_heads, of.num_key_value_heads,
      of.head_dim, of.intermediate_size, of.vocab_size, of.qkv_bias, of.mlp_bias,
      of.tie_word_embeddings);
}

std::string gpu_text(const Figures& gpu) {
  std::string text;
  for (const Figure& one : gpu.all)
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", one.key, one.value);
  return text;
}

// "8.4us+3x14us,45GB/s": the latency and the rate of an all_gather, or those of small messages.
std::string link_text(const DimLink& dim) {
  std::string text;
  for (const LinkProtocol& one : dim.model.protocols) {
    text += fmt::format("{}{:.6g}us", text.empty() ? "" : " or ", one.base_ns / 1e3);
    if (one.step_ns > 0) text += fmt::format("+{}x{:.6g}us", dim.dim.size - 1, one.step_ns / 1e3);
    text += fmt::format(",{:.6g}GB/s", one.rate / 1e9);
  }
  return dim.dim.name + ' ' + text;
}

TraceAbout about(const SimulateOptions& options, const Question& question) {
  const LlamaRun& run = question.run;
  TraceAbout about{{"model", model_text(run.config)},
                   {"mesh", to_string(run.mesh)},
                   {"plan", options.plan},
                   {"recompute", options.recompute},
                   {"gpu", gpu_text(question.gpu)},
                   {"weave", std::to_string(run.weave)},
                   {"batch", std::to_string(run.batch)},
                   {"seq", std::to_string(run.seq)}};
  about["overlap"] = options.overlap;
  about["simulated"] =
      str_cat(ranks_of(run.mesh), " ranks (", to_string(run.mesh), " of ", question.gpu.name, ')');
  for (const DimLink& dim : run.links.dims)
    about["link"] += (about["link"].empty() ? "" : "; ") + link_text(dim);
  return about;
}

void require_other_file(const SimulateOptions& options, const Question& question) {
  std::vector<std::string> read{options.model, options.gpu};
  for (const Figures& link : question.run.links.figures) read.push_back(link.name);
  for (const std::string& name : read)
    CS_REQUIRE(!is_same_file(options.trace, name), "--trace ", options.trace,
               ": is an input of this run, which it would overwrite");
  CS_REQUIRE(!is_same_file(options.trace, "/dev/stdout"), "--trace ", options.trace,
             ": is stdout, to which the forecast is written");
}

void write_trace(const SimulateOptions& options, const Question& question,
                 const Forecast& forecast) {
  write_output("--trace", options.trace, [&](std::ostream& out) {
    write_chrome_trace(out, forecast.trace, 0, std::nullopt, about(options, question));
  });
}

}  // namespace

Inputs read_inputs(const SimulateOptions& options, const std::vector<MeshDim>& mesh) {
  return {llama_config(options.model), gpu_figures(options.gpu),
          given_links(mesh, options.link, options.gpu)};
}

Question question_of(const SimulateOptions& options) {
  CS_REQUIRE(!options.mesh.empty(), "simulate needs --mesh, such as dp=32,tp=8",
             options.gpus > 0 ? "; --gpus is for --search" : "");
  return question_of(options, read_inputs(options, parse_mesh_dims(options.mesh)));
}

Question question_of(const SimulateOptions& options, const Inputs& inputs) {
  Question question;
  question.gpu = inputs.gpu;
  question.processor = processor_of(question.gpu);
  LlamaRun& run = question.run;
  run.config = inputs.config;
  run.mesh = parse_mesh_dims(options.mesh);
  CS_REQUIRE(options.gpus == 0 || options.search || options.gpus == ranks_of(run.mesh), "--gpus ",
             options.gpus, " contradicts --mesh ", options.mesh, ", which has ",
             ranks_of(run.mesh));
  run.links = links_of(run.mesh, inputs.links, options.gpus_per_node);
  run.batch = options.batch;
  if (run.batch == 0) run.batch = size_of_dim(run.mesh, "dp");
  run.seq = options.seq;
  run.sequence_parallel = options.plan == "tp-sp";
  run.recompute = options.recompute == "layers";
  run.overlap = parse_overlap(options.overlap);
  run.weave = options.weave;
  check(run);
  return question;
}

void simulate_training(const SimulateOptions& options, std::ostream& out) {
  CS_REQUIRE(!options.model.empty(), "simulate needs --model: ", listed(model_presets()),
             " or a config.json");
  if (options.search) return search_meshes(options, out);
  const Question question = question_of(options);
  if (!options.trace.empty()) require_other_file(options, question);
  const Forecast forecast = forecast_of(question.run, question.processor, !options.trace.empty());
  if (!options.trace.empty()) write_trace(options, question, forecast);
  if (options.json)
    out << json_text(forecast_json(options, question, forecast), 2) << '\n';
  else
    print_forecast(out, options, question, forecast);
}

}  // namespace coshard::tools
