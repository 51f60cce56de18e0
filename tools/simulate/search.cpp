#include "tools/simulate/search.h"

#include <fmt/format.h>

#include <algorithm>

#include <coshard/runtime/error.h>
#include "tools/simulate/models.h"
#include "tools/simulate/report.h"

namespace coshard::tools {
namespace {

struct Candidate {
  SimulateOptions options;
  Question question;
  Forecast forecast;
};

constexpr std::size_t kShown = 10;

struct Meshes {
  std::vector<std::string> tried;
  int unlinked = 0;
};

// Meshes that divide the model and the batch, without those that a link does not join.
Meshes meshes_of(const SimulateOptions& options, const Inputs& inputs) {
  const nn::CausalLMConfig& config = inputs.config;
  Meshes meshes;
  for (int tp = 1; tp <= options.gpus; ++tp) {
    if (options.gpus % tp != 0) continue;
    const int dp = options.gpus / tp;
    const bool divides = config.num_key_value_heads % tp == 0 &&
                         config.num_attention_heads % tp == 0 &&
                         config.intermediate_size % tp == 0 && config.vocab_size % tp == 0;
    if (!divides || options.batch % dp != 0) continue;
    if (links_join({{"dp", dp}, {"tp", tp}}, inputs.links, options.gpus_per_node))
      meshes.tried.push_back(str_cat("dp=", dp, ",tp=", tp));
    else
      ++meshes.unlinked;
  }
  return meshes;
}

std::vector<SimulateOptions> choices_of(const SimulateOptions& options,
                                        const std::vector<std::string>& meshes) {
  std::vector<SimulateOptions> choices;
  for (const std::string& mesh : meshes) {
    const int tp = size_of_dim(parse_mesh_dims(mesh), "tp");
    for (const char* plan : {"tp-sp", "tp"}) {
      if (tp == 1 && plan == std::string_view("tp-sp")) continue;
      if (plan == std::string_view("tp-sp") && options.seq % tp != 0) continue;
      if (options.weave > options.batch * tp / options.gpus) continue;  // sequences per rank
      for (const std::string& policy : recompute_policies()) {
        SimulateOptions choice = options;
        choice.mesh = mesh, choice.plan = plan, choice.recompute = policy;
        choices.push_back(std::move(choice));
      }
    }
  }
  return choices;
}

Json json_of(const std::vector<Candidate>& fitting) {
  Json json = Json::array();
  for (const Candidate& c : fitting)
    json.push_back(forecast_json(c.options, c.question, c.forecast));
  return json;
}

void print(std::ostream& out, const std::vector<Candidate>& fitting) {
  out << fmt::format("{:<16} {:<6} {:<10} {:>11} {:>12} {:>11} {:>9}\n", "mesh", "plan",
                     "recompute", "step ms", "tokens/s", "exposed ms", "peak GB");
  for (const Candidate& c : fitting)
    out << fmt::format(
        "{:<16} {:<6} {:<10} {:>11.2f} {:>12.0f} {:>11.2f} {:>9.2f}\n", c.options.mesh,
        c.options.plan, c.options.recompute, static_cast<double>(c.forecast.step) * 1e-6,
        tokens_per_second(c.question, c.forecast), static_cast<double>(c.forecast.exposed) * 1e-6,
        c.forecast.memory.peak * 1e-9);
}

}  // namespace

void search_meshes(const SimulateOptions& given, std::ostream& out) {
  CS_REQUIRE(given.mesh.empty() && given.gpus > 0,
             "--search needs --gpus N in place of --mesh, got --gpus ", given.gpus, " and --mesh '",
             given.mesh, "'");
  CS_REQUIRE(given.trace.empty(), "--search writes no trace, got --trace ", given.trace);
  SimulateOptions options = given;
  if (options.batch == 0) options.batch = options.gpus;
  const Inputs inputs = read_inputs(options, {{"dp", 1}, {"tp", 1}});
  const Meshes meshes = meshes_of(options, inputs);
  CS_REQUIRE(!meshes.tried.empty() || meshes.unlinked == 0, "--search: --link ", options.link,
             " joins the nodes of no mesh of ", options.gpus, " GPUs, ", options.gpus_per_node,
             " to a node");
  const std::vector<SimulateOptions> choices = choices_of(options, meshes.tried);
  CS_REQUIRE(!choices.empty(), "--search: no mesh of ", options.gpus, " GPUs divides --batch ",
             options.batch, " and the heads of ", options.model,
             options.weave > 1 ? str_cat(", with sequences for --weave ", options.weave) : "");
  std::vector<Candidate> fitting;
  double least = 0;
  for (const SimulateOptions& choice : choices) {
    const Question question = question_of(choice, inputs);
    Forecast forecast = forecast_of(question.run, question.processor);
    const double peak = forecast.memory.peak;
    if (least == 0 || peak < least) least = peak;
    if (forecast.memory.fits()) fitting.push_back({choice, question, std::move(forecast)});
  }
  std::ranges::stable_sort(fitting, {}, [](const Candidate& c) { return c.forecast.step; });
  const std::size_t fit = fitting.size();
  if (fitting.size() > kShown) fitting.resize(kShown);
  if (options.json) {
    out << json_text(json_of(fitting), 2) << '\n';
    return;
  }
  if (fit > 0) print(out, fitting);
  out << fmt::format("{} of {} choices fit on {} x {}; the least peak is {:.2f} GB\n", fit,
                     choices.size(), options.gpus, options.gpu, least * 1e-9);
  if (meshes.unlinked > 0)
    out << fmt::format("{} mesh{} left out: --link {} does not join all ranks of a dimension\n",
                       meshes.unlinked, meshes.unlinked == 1 ? "" : "es", options.link);
}

}  // namespace coshard::tools
