#include "tools/simulate/simulate.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include <coshard/runtime/error.h>
#include "profiling/input_file.h"
#include "profiling/json.h"
#include "tools/simulate/models.h"
#include "tools/simulate/report.h"
#include "tools/simulate/search.h"

namespace coshard::tools {
namespace {

// Files of one name may hold different models.
std::string model_text(const std::string& name, const nn::LlamaConfig& of) {
  return fmt::format("{} (layers={},dim={},heads={},kv_heads={},ffn={},vocab={})", name,
                     of.num_hidden_layers, of.hidden_size, of.num_attention_heads,
                     of.num_key_value_heads, of.intermediate_size, of.vocab_size);
}

TraceAbout about(const SimulateOptions& options, const Question& question) {
  const LlamaRun& run = question.run;
  TraceAbout about{{"model", model_text(options.model, run.config)},
                   {"mesh", to_string(run.mesh)},
                   {"plan", options.plan},
                   {"recompute", options.recompute},
                   {"gpu", question.gpu.name},
                   {"weave", std::to_string(run.weave)},
                   {"batch", std::to_string(run.batch)},
                   {"seq", std::to_string(run.seq)}};
  about["overlap"] = options.overlap;
  about["simulated"] =
      str_cat(ranks_of(run.mesh), " ranks (", to_string(run.mesh), " of ", question.gpu.name, ')');
  for (const DimLink& dim : run.links.dims)
    about["link"] += str_cat(about["link"].empty() ? "" : ",", dim.dim.name, '=', dim.model.name);
  return about;
}

void require_other_file(const SimulateOptions& options, const Question& question) {
  std::vector<std::string> read{options.model, options.gpu};
  for (const Figures& link : question.run.links.figures) read.push_back(link.name);
  for (const std::string& name : read)
    CS_REQUIRE(!is_same_file(options.trace, name), "--trace ", options.trace,
               ": is an input of this run, which it would overwrite");
}

void write_trace(const SimulateOptions& options, const Question& question,
                 const Forecast& forecast) {
  const std::string& name = options.trace;
  std::ofstream file(name, std::ios::binary);
  if (!file) fail(ErrorKind::BadInput, str_cat("--trace ", name, ": ", std::strerror(errno)));
  write_chrome_trace(file, forecast.trace, 0, std::nullopt, about(options, question));
  file.close();
  if (!file) fail(ErrorKind::DeviceFailed, str_cat(name, ": could not be written"));
}

}  // namespace

Question question_of(const SimulateOptions& options) {
  CS_REQUIRE(!options.mesh.empty(), "simulate needs --mesh, such as dp=32,tp=8",
             options.gpus > 0 ? "; --gpus is for --search" : "");
  Question question;
  question.gpu = gpu_figures(options.gpu);
  question.processor = processor_of(question.gpu);
  LlamaRun& run = question.run;
  run.config = llama_config(options.model);
  run.mesh = parse_mesh_dims(options.mesh);
  CS_REQUIRE(options.gpus == 0 || options.search || options.gpus == ranks_of(run.mesh), "--gpus ",
             options.gpus, " contradicts --mesh ", options.mesh, ", which has ",
             ranks_of(run.mesh));
  run.links = links_of(run.mesh, options.link, options.gpu, options.gpus_per_node);
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
