#include "tools/simulate/figures.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>

#include <coshard/runtime/error.h>
#include "profiling/input_file.h"
#include "profiling/json.h"
#include "runtime/near_miss.h"

namespace coshard::tools {
namespace {

constexpr const char* kSheetH100 = "data sheet of the NVIDIA H100 SXM";
constexpr const char* kSheetH200 = "data sheet of the NVIDIA H200 SXM";
constexpr const char* kSheetB200 = "data sheet of the NVIDIA HGX B200";
constexpr const char* kBestShape =
    "stas00/ml-engineering, accelerator benchmarks: best shape of bf16 GEMM, 80.3 % of 989";
constexpr const char* kMemory = "90 % of the data sheet, assumed";
constexpr const char* kAttention = "0.6 of the GEMM rate, assumed";
constexpr const char* kKernel = "assumed: from one kernel's end to the next one's work";
constexpr const char* kWide = "80 % of the data sheet's f32 without tensor cores, assumed";
constexpr const char* kDefinition = "by definition";
constexpr const char* kSteps = "NCCL 2.30.7, src/graph/tuning.cc: its model of a ring, Simple";
constexpr const char* kSmall = "NCCL 2.30.7, src/graph/tuning.cc: its model of a ring, LL";
constexpr const char* kBase = "NCCL 2.30.7, src/graph/tuning.cc: its base latency, Simple";

std::vector<Figures> gpus() {
  return {
      {"gpu",
       "h100",
       {{"memory_gb", 80, kSheetH100},
        {"memory_gbps", 0.9 * 3350, kMemory},
        {"product_tflops", 794.5, kBestShape, true},
        {"wide_product_tflops", 0.8 * 67, kWide},
        {"attention_tflops", 0.6 * 794.5, kAttention},
        {"multiprocessors", 132, kSheetH100},
        {"kernel_us", 2, kKernel}}},
      {"gpu",
       "h200",
       {{"memory_gb", 141, kSheetH200},
        {"memory_gbps", 0.9 * 4800, kMemory},
        {"product_tflops", 794.5, kBestShape, true},
        {"wide_product_tflops", 0.8 * 67, kWide},
        {"attention_tflops", 0.6 * 794.5, kAttention},
        {"multiprocessors", 132, kSheetH200},
        {"kernel_us", 2, kKernel}}},
      {"gpu",
       "b200",
       {{"memory_gb", 180, kSheetB200},
        {"memory_gbps", 0.9 * 8000, kMemory},
        {"product_tflops", 0.8 * 2250, "80 % of the data sheet, as an H100 reaches, assumed"},
        {"wide_product_tflops", 0.8 * 75, kWide},
        {"attention_tflops", 0.6 * 0.8 * 2250, kAttention},
        {"multiprocessors", 148, kSheetB200},
        {"kernel_us", 2, kKernel}}},
      {"gpu",
       "ideal",
       {{"memory_gb", 0, kDefinition},
        {"memory_gbps", 0, kDefinition},
        {"product_tflops", 650, kDefinition},
        {"wide_product_tflops", 650, kDefinition},
        {"attention_tflops", 390, kDefinition},
        {"multiprocessors", 0, kDefinition},
        {"kernel_us", 0, kDefinition}}},
  };
}

std::vector<Figures> links() {
  return {
      {"link",
       "nvlink4",
       {{"gbps", 365.6,
         "stas00/ml-engineering, network benchmarks: all_reduce bus bandwidth, 8 H200, NCCL "
         "2.27.7, "
         "NVLS off",
         true},
        {"base_us", 8.4, kBase},
        {"step_us", 3.4, kSteps},
        {"crosses_nodes", 0, kDefinition},
        {"small_gbps", 141, kSmall},
        {"small_base_us", 6.6, kSmall},
        {"small_step_us", 0.6, kSmall}}},
      {"link",
       "nvlink5",
       {{"gbps", 731, "twice nvlink4, as the data sheets' 900 to 450, assumed"},
        {"base_us", 8.4, kBase},
        {"step_us", 3.4, kSteps},
        {"crosses_nodes", 0, kDefinition},
        {"small_gbps", 282, "twice nvlink4, assumed"},
        {"small_base_us", 6.6, kSmall},
        {"small_step_us", 0.6, kSmall}}},
      {"link",
       "ndr",
       {{"gbps", 45, "90 % of 400 Gbit/s, a NIC per GPU, assumed"},
        {"base_us", 8.4, kBase},
        {"step_us", 14, kSteps},
        {"crosses_nodes", 1, kDefinition},
        {"small_gbps", 22.5, "half the rate, as NCCL's LL sends, assumed"},
        {"small_base_us", 6.6, kSmall},
        {"small_step_us", 2.7, kSmall}}},
  };
}

const std::vector<Figures>& presets() {
  static const std::vector<Figures> all = [] {
    std::vector<Figures> both = gpus();
    std::ranges::copy(links(), std::back_inserter(both));
    return both;
  }();
  return all;
}

std::vector<std::string> names_of(std::string_view kind) {
  std::vector<std::string> names;
  for (const Figures& each : presets())
    if (each.kind == kind) names.push_back(each.name);
  return names;
}

const Figures* find_preset(std::string_view kind, std::string_view name) {
  const auto found = std::ranges::find_if(
      presets(), [&](const Figures& f) { return f.kind == kind && f.name == name; });
  return found == presets().end() ? nullptr : &*found;
}

void require_known(const Json& json, const std::vector<Figure>& keys, const std::string& file) {
  std::vector<std::string> known;
  for (const Figure& key : keys) known.push_back(key.key);
  for (const auto& [word, value] : json.items()) {
    if (std::ranges::find(known, word) != known.end()) continue;
    const std::string near = near_miss(word, known);
    fail(ErrorKind::BadInput,
         near.empty() ? str_cat(file, ": has no key \"", word, "\"; its keys are ", listed(known))
                      : str_cat(file, ": has no key \"", word, "\"; did you mean ", near, '?'));
  }
}

// Reads a file with the keys of the first preset of its kind.
Figures from_file(const std::string& kind, const std::string& text) {
  std::ifstream file =
      open_input(text, str_cat("--", kind),
                 str_cat("; expected ", listed(names_of(kind)),
                         kind == "link" ? ", a rate such as 365GB/s" : "", " or a JSON file"));
  const Json json = Json::parse(file, nullptr, false);
  CS_REQUIRE(json.is_object(), "--", kind, " ", text, ": is not a JSON object");
  Figures found{kind, text, {}};
  const std::vector<Figure>& keys = find_preset(kind, names_of(kind).front())->all;
  require_known(json, keys, str_cat("--", kind, " ", text));
  const bool has_small = std::ranges::any_of(keys, [&](const Figure& key) {
    return key.key.starts_with("small_") && json.contains(key.key);
  });
  std::vector<std::string> missing;
  for (const Figure& key : keys) {
    const auto value = json.find(key.key);
    if (value == json.end()) {
      if (!key.key.starts_with("small_") || has_small) missing.push_back(key.key);
      continue;
    }
    const double number = value->is_number() ? value->get<double>() : -1;
    const bool counts = key.key == "multiprocessors";
    const double most = counts ? 1e6 : 1e9;
    CS_REQUIRE(number >= 0 && number <= most && (!counts || number == std::floor(number)), "--",
               kind, " ", text, ": ", key.key, " ", json_text(*value), " is not a ",
               counts ? "whole " : "", "number from 0 to ", most);
    found.all.push_back({key.key, number, text, true});
  }
  CS_REQUIRE(missing.empty(), "--", kind, " ", text, ": lacks ", listed(missing));
  return found;
}

void require_positive(const Figures& figures, std::string_view key) {
  CS_REQUIRE(figures[key] > 0, "--", figures.kind, " ", figures.name, ": ", key,
             " must be above 0, got ", figures[key]);
}

}  // namespace

bool Figures::has(std::string_view key) const {
  return std::ranges::any_of(all, [&](const Figure& f) { return f.key == key; });
}

double Figures::operator[](std::string_view key) const {
  const auto found = std::ranges::find_if(all, [&](const Figure& f) { return f.key == key; });
  CS_REQUIRE(found != all.end(), kind, " ", name, " lacks ", key);
  return found->value;
}

std::vector<std::string> gpu_presets() { return names_of("gpu"); }
std::vector<std::string> link_presets() { return names_of("link"); }

std::string listed(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += str_cat(text.empty() ? "" : ", ", word);
  return text;
}

Figures gpu_figures(const std::string& text) {
  const Figures* preset = find_preset("gpu", text);
  const Figures gpu = preset != nullptr ? *preset : from_file("gpu", text);
  for (const char* key : {"product_tflops", "wide_product_tflops", "attention_tflops"})
    require_positive(gpu, key);
  return gpu;
}

Figures link_figures(const std::string& text) {
  const Figures* preset = find_preset("link", text);
  const Figures link = preset != nullptr ? *preset : from_file("link", text);
  require_positive(link, "gbps");
  const double crosses = link["crosses_nodes"];
  CS_REQUIRE(crosses == 0 || crosses == 1, "--link ", text, ": crosses_nodes is 0 or 1, got ",
             crosses);
  if (link.has("small_gbps")) require_positive(link, "small_gbps");
  return link;
}

ProcessorModel processor_of(const Figures& gpu) {
  ProcessorModel model;
  model.name = gpu.name;
  model.memory = gpu["memory_gb"] * 1e9;
  model.memory_rate = gpu["memory_gbps"] * 1e9;
  model.product_rate = gpu["product_tflops"] * 1e12;
  model.wide_product_rate = gpu["wide_product_tflops"] * 1e12;
  model.attention_rate = gpu["attention_tflops"] * 1e12;
  model.multiprocessors = static_cast<int>(gpu["multiprocessors"]);
  model.kernel_ns = static_cast<std::int64_t>(gpu["kernel_us"] * 1e3);
  return model;
}

std::string own_link(std::string_view gpu) {
  if (gpu == "ideal") return "365GB/s";
  return gpu == "b200" ? "nvlink5" : "nvlink4";
}

}  // namespace coshard::tools
