// PEFT's adapter_config.json: what is read, and what is refused by name and value.
#include "styles/adapter_config.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/dtensor/checkpoint/stored_files.h"
#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

using Json = nlohmann::ordered_json;

Json lora_config() {
  return {{"peft_type", "LORA"},
          {"r", 4},
          {"lora_alpha", 8.5},
          {"target_modules", {"q_proj", "v_proj"}}};
}

AdapterConfig read_back(const std::string& text) {
  const ScratchFolder scratch;
  std::ofstream(scratch.path(kAdapterConfig)) << text;
  return read_adapter_config(scratch.path(""));
}
std::string refusal_with(const char* key, const Json& value) {
  Json config = lora_config();
  config[key] = value;
  return error_of([&] { read_back(config.dump()); });
}

TEST(AdapterConfig, IsReadAsItIsWritten) {
  const nn::LoraOptions options{.rank = 4, .alpha = 6, .dropout = 0.125, .rslora = true};
  const std::string text = adapter_config_text(options, {"q_proj"});
  EXPECT_CONTAINS(text, "\"lora_alpha\": 6,");
  const AdapterConfig config = read_back(text);
  EXPECT_EQ(config.options, options);
  ASSERT_EQ(config.rules.size(), 1U);
  EXPECT_TRUE(config.rules[0].admits("a.q_proj"));
  EXPECT_FALSE(config.rules[0].admits("a.v_proj"));
  EXPECT_EQ(options.scale(), 3);
  EXPECT_EQ((nn::LoraOptions{.rank = 4, .alpha = 6}.scale()), 1.5);
}

TEST(AdapterConfig, NamesTheFolderOfTheBase) {
  const auto base = [](const std::string& folder) {
    const Json json = Json::parse(adapter_config_text({.rank = 4}, {"q_proj"}, folder));
    return json.at("base_model_name_or_path");
  };
  EXPECT_EQ(base(""), Json());
  EXPECT_EQ(base("/models/a"), Json("/models/a"));
  EXPECT_EQ(base("/models/\xff"), Json("/models/\xef\xbf\xbd"));
}

TEST(AdapterConfig, TakesARegularExpressionAndInertKeys) {
  Json config = lora_config();
  config["target_modules"] = ".*attn.*";
  config["megatron_core"] = "megatron.core";
  config["base_model_name_or_path"] = "x";
  config["init_lora_weights"] = "gaussian";
  config["eva_config"] = {{"rho", 2}};
  config["some_later_key"] = nullptr;
  config["rank_pattern"] = Json::object();
  config["fan_in_fan_out"] = true;  // PEFT sets it by the layer's class
  config["layers_pattern"] = "layers";
  EXPECT_EQ(read_back(config.dump()).rules.size(), 1U);
  config["target_modules"] = "all-linear";
  EXPECT_EQ(read_back(config.dump()).rules.size(), 0U);
}

// Whether all rules admit a path, where these keys are in the config.
bool admits(const Json& keys, std::string_view path) {
  Json config = lora_config();
  config.update(keys);
  const AdapterConfig read = read_back(config.dump());
  return std::ranges::all_of(read.rules, [&](const LayerRule& rule) { return rule.admits(path); });
}

TEST(AdapterConfig, RegularExpressionsMatchWholePaths) {
  constexpr const char* kPath = "model.layers.12.self_attn.q_proj";
  for (const char* yes :
       {R"(.*\.q_proj)", R"(model\.layers\.(\d+|x)\..*[a-z_]{6})", R"(.*(?:q|v)_proj)",
        R"([\w.]+\d{2}.*)", R"(model\.layers\.1[0-3]\..*?_proj)",
        R"((?:\bmodel\.layers\.[\d]{1,}\.(?:self_attn|mlp)\.(?:q_proj|up_proj)))"})
    EXPECT_TRUE(admits({{"target_modules", yes}}, kPath)) << yes;
  for (const char* no : {"q_proj", R"(.*\.v_proj)", "model", R"([^q]*)", "()"})
    EXPECT_FALSE(admits({{"target_modules", no}}, kPath)) << no;
  EXPECT_FALSE(admits({{"target_modules", "(a+a+)+y"}}, std::string(60, 'a')));
}

TEST(AdapterConfig, ExpressionsThatPythonReadsDifferentlyAreRefused) {
  for (const char* text :
       {"(?P<a>x)",    "(?<=x)y", "(?!x)y", "(a{9}){9}", "a)(b",   "*x",       "x{y}",
        "x**",         "(?i)x",   "x++",    "x*+",       R"(x\Z)", R"((x)\1)", R"([\b])",
        "[[:alpha:]]", "[]x]",    "[^]x]",  "(",         "x{2,1}", "é",        R"(x\)"})
    EXPECT_CONTAINS(refusal_with("target_modules", text), "a list of names is");
  EXPECT_CONTAINS(refusal_with("exclude_modules", "(?i)x"), "exclude_modules \"(?i)x\"");
  EXPECT_CONTAINS(refusal_with("target_modules", std::string(1001, 'x')), "a list of names is");
}

TEST(AdapterConfig, ExcludedModulesAreNotAdmitted) {
  EXPECT_FALSE(admits({{"exclude_modules", {"a.v_proj"}}}, "x.a.v_proj"));
  EXPECT_TRUE(admits({{"exclude_modules", {"a.v_proj"}}}, "x.b.v_proj"));
  EXPECT_FALSE(admits({{"exclude_modules", ".*v_proj"}}, "x.v_proj"));
  EXPECT_TRUE(admits({{"exclude_modules", Json::array()}}, "x.v_proj"));
}

TEST(AdapterConfig, LayersToTransformAdmitTheirNumbers) {
  constexpr const char* kFirst = "model.layers.0.mlp.experts.1.q_proj";
  EXPECT_TRUE(admits({{"layers_to_transform", 0}}, kFirst));
  EXPECT_FALSE(admits({{"layers_to_transform", 1}}, kFirst));
  EXPECT_TRUE(admits({{"layers_to_transform", {2, 0}}}, kFirst));
  EXPECT_FALSE(admits({{"layers_to_transform", 0}}, "q_proj"));
  EXPECT_TRUE(admits({{"layers_to_transform", 1}, {"layers_pattern", "experts"}}, kFirst));
  EXPECT_FALSE(admits({{"layers_to_transform", 0}, {"layers_pattern", {"h"}}}, kFirst));
  EXPECT_TRUE(admits({{"layers_to_transform", 3}, {"layers_pattern", {"h"}}}, "h.3.q_proj"));
  EXPECT_CONTAINS(refusal_with("layers_to_transform", -1), "layers_to_transform -1");
  EXPECT_CONTAINS(refusal_with("layers_to_transform", "0"), "layers_to_transform \"0\"");
  EXPECT_CONTAINS(error_of([] {
                    admits({{"target_modules", ".*"}, {"layers_to_transform", 0}}, "x");
                  }),
                  "without a list in target_modules");
  EXPECT_CONTAINS(error_of([] {
                    admits({{"layers_pattern", "h.*"}, {"layers_to_transform", 0}}, "x");
                  }),
                  "layers_pattern \"h.*\"");
}

TEST(AdapterConfig, AnAdapterOfPickleIsNamedWithARemedy) {
  const ScratchFolder scratch;
  scratch.write(kAdapterConfig, lora_config().dump());
  scratch.write("adapter_model.bin", "x");
  EXPECT_CONTAINS(error_of([&] { read_adapter_config(scratch.path("")); }),
                  "safe_serialization=True");
  scratch.write("adapter_model.safetensors", "x");
  EXPECT_EQ(read_adapter_config(scratch.path("")).options.rank, 4);
}

TEST(AdapterConfig, RefusesWhatHasAnEffectByNameAndValue) {
  EXPECT_CONTAINS(refusal_with("use_dora", true), "use_dora true is not supported");
  EXPECT_CONTAINS(refusal_with("rank_pattern", {{"q", 2}}), "rank_pattern {\"q\":2}");
  EXPECT_CONTAINS(refusal_with("alpha_pattern", {{"q", 2}}), "alpha_pattern");
  EXPECT_CONTAINS(refusal_with("modules_to_save", {"lm_head"}), "modules_to_save [\"lm_head\"]");
  EXPECT_CONTAINS(refusal_with("bias", "all"), "bias \"all\"");
  EXPECT_CONTAINS(refusal_with("fan_in_fan_out", 1), "fan_in_fan_out 1");
  EXPECT_CONTAINS(refusal_with("exclude_modules", 3), "exclude_modules 3");
  EXPECT_CONTAINS(refusal_with("some_later_key", "on"), "some_later_key \"on\"");
  EXPECT_CONTAINS(refusal_with("init_lora_weights", "pissa"), "init_lora_weights \"pissa\"");
  EXPECT_CONTAINS(refusal_with("peft_type", "IA3"), "peft_type \"IA3\"");
  EXPECT_CONTAINS(refusal_with("task_type", "SEQ_CLS"), "task_type \"SEQ_CLS\"");
  EXPECT_CONTAINS(refusal_with("r", 0), "r 0");
  EXPECT_CONTAINS(refusal_with("r", 1.5), "r 1.5");
  EXPECT_CONTAINS(refusal_with("lora_alpha", "8"), "lora_alpha \"8\"");
  EXPECT_CONTAINS(refusal_with("lora_dropout", 1), "lora_dropout 1");
  EXPECT_CONTAINS(refusal_with("use_rslora", 1), "use_rslora 1");
  EXPECT_CONTAINS(refusal_with("target_modules", Json::array()), "target_modules []");
  EXPECT_CONTAINS(refusal_with("target_modules", Json{1, 2}), "target_modules [1,2]");
  EXPECT_CONTAINS(error_of([] { read_back("[]"); }), "does not begin with");
  EXPECT_CONTAINS(error_of([] { read_back("{\"r\":1,\"r\":2}"); }), "twice");
}

constexpr const char* kA = "base_model.model.a.q_proj.lora_A.weight";
constexpr const char* kB = "base_model.model.a.q_proj.lora_B.weight";

std::vector<std::string> paths_in(const Json& header, const char* target = "q_proj") {
  const std::string text = header.dump();
  std::uint64_t bytes = 0;
  for (const auto& [name, entry] : header.items())
    bytes = std::max(bytes, entry["data_offsets"][1].get<std::uint64_t>());
  const SafetensorsHeader file(text, bytes, "file");
  const LayerRule rule{"target_modules",
                       [&](std::string_view path) { return path.ends_with(target); }};
  return adapted_paths(file, {{.rank = 2}, {rule}});
}
Json tensor(std::vector<int> shape, int begin, int end) {
  return {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {begin, end}}};
}

TEST(AdapterConfig, NamesTheLayersOfAFile) {
  const Json a = tensor({2, 3}, 0, 24), b = tensor({5, 2}, 24, 64);
  EXPECT_EQ(paths_in({{kA, a}, {kB, b}}), std::vector<std::string>{"a.q_proj"});
  EXPECT_CONTAINS(error_of([&] { paths_in({{kA, a}}); }), "without");
  EXPECT_CONTAINS(error_of([&] { paths_in({{kA, a}, {kB, b}}, "x"); }), "target_modules");
  const Json copy{{"base_model.model.lm_head.base_layer.weight", a}};
  EXPECT_CONTAINS(error_of([&] { paths_in(copy); }), "save_embedding_layers=False");
  EXPECT_CONTAINS(error_of([&] { paths_in({{"x.lora_A.weight", a}, {kB, b}}); }), "is not");
  const Json wide = tensor({3, 2}, 0, 24);
  EXPECT_CONTAINS(error_of([&] { paths_in({{kA, wide}, {kB, b}}); }), "r is 2");
}

}  // namespace
}  // namespace coshard::testing
