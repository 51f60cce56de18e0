// config.json: spellings, defaults and refusals, which transformers 4.57 and 5 were asked about.
#include <coshard/styles/nn/config_json.h>

#include <gtest/gtest.h>

#include <random>

#include "styles/nn/config_text.h"
#include "tests/dtensor/checkpoint/stored_files.h"

namespace coshard::nn {
namespace {

using testing::message_of;
using testing::ScratchFolder;

const char* const kCases[] = {"llama",      "llama_linear", "llama_dynamic", "llama_llama3",
                              "llama_yarn", "llama_gelu",   "llama_biases",  "mistral",
                              "qwen2",      "qwen2_window", "qwen3",         "llama_odd",
                              "qwen3_few",  "gemma"};

std::string folder_of(const std::string& name) { return COSHARD_TEST_MODELS "/" + name; }

ConfigJson base(const std::string& type = "llama") {
  return {{"model_type", type},      {"vocab_size", 32},       {"hidden_size", 16},
          {"intermediate_size", 24}, {"num_hidden_layers", 2}, {"num_attention_heads", 4},
          {"num_key_value_heads", 2}};
}

CausalLMConfig read(const ConfigJson& json, const ReadConfigOptions& options = {}) {
  const ScratchFolder folder;
  folder.write("config.json", json.dump());
  return read_config(folder.path(""), options);
}

// Of `type` with these members changed; null removes one, "null" sets null.
CausalLMConfig read(const std::string& type, const char* members,
                    const ReadConfigOptions& options = {}) {
  ConfigJson json = base(type);
  json.update(ConfigJson::parse(members));
  return read(json, options);
}

std::string refusal(const std::string& type, const char* members) {
  const std::string text = message_of([&] { read(type, members); });
  EXPECT_EQ(text.find('\n'), std::string::npos);
  return text.substr(std::min(text.find("config.json"), text.size()));
}

std::string text_of_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(CausalLM, S11RefusesAConfigOfMoreThanFourMegabytes) {
  const ScratchFolder folder;
  constexpr std::size_t kMost = 4 << 20;
  std::string text = base().dump();
  text.resize(kMost, ' ');
  folder.write("config.json", text);
  EXPECT_EQ(read_config(folder.path("")), read(base()));
  folder.write("config.json", text + " ");
  EXPECT_NE(message_of([&] { read_config(folder.path("")); }).find("has 4194305 bytes"),
            std::string::npos);
}

TEST(CausalLM, S57BothSpellingsOfAConfigAreOne) {
  for (const std::string name : kCases) {
    const CausalLMConfig five = read_config(folder_of(name));
    EXPECT_EQ(five, read_config(folder_of(name) + "/config_of_4.json")) << name;
    EXPECT_EQ(five.model_type, name.substr(0, name.find('_')));
  }
  const CausalLMConfig llama3 = read_config(folder_of("llama_llama3"));
  EXPECT_EQ(llama3.rope, (RopeConfig{.type = RopeType::Llama3,
                                     .theta = 500000,
                                     .factor = 8,
                                     .original_max_position_embeddings = 16}));
  const char* const linear[] = {
      R"({"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2}})",
      R"({"rope_theta": 5e5, "rope_scaling": {"rope_type": "linear", "factor": 2.0}})",
      R"({"rope_parameters": {"rope_type": "linear", "factor": 2, "rope_theta": 500000}})",
      R"({"rope_theta": 5e5, "rope_parameters": {"rope_type": "linear", "factor": 2}})",
      R"({"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2},
          "rope_parameters": {"rope_type": "linear", "factor": 2, "rope_theta": 500000.0}})"};
  for (const char* text : linear)
    EXPECT_EQ(read("llama", text).rope,
              (RopeConfig{.type = RopeType::Linear, .theta = 500000, .factor = 2}))
        << text;
  for (const char* text : {R"({"dtype": "bfloat16"})", R"({"torch_dtype": "bfloat16"})",
                           R"({"dtype": "bfloat16", "torch_dtype": "bfloat16"})"})
    EXPECT_EQ(read("llama", text).dtype, DType::BF16);
}

TEST(CausalLM, S56WhatIsNotSupportedIsRefusedWithKeyAndValue) {
  const struct {
    const char *type, *members, *begin;
  } cases[] = {
      {"llama", R"({"rope_scaling": {"rope_type": "longrope", "factor": 2}})",
       "config.json: rope_scaling.rope_type \"longrope\" is not supported"},
      {"llama", R"({"rope_scaling": {"type": "mrope"}})",
       "config.json: rope_scaling.type \"mrope\" is not supported"},
      {"llama", R"({"rope_scaling": 8})", "config.json: rope_scaling 8 is not an object"},
      {"llama", R"({"rope_scaling": {"rope_type": "linear"}})",
       "config.json: rope_scaling.factor absent"},
      {"llama", R"({"rope_scaling": {"rope_type": "linear", "factor": "2"}})",
       "config.json: rope_scaling.factor \"2\" is not a number"},
      {"llama", R"({"rope_scaling": {"rope_type": "linear", "factor": 2, "beta": true}})",
       "config.json: rope_scaling.beta true is not known"},
      {"llama", R"({"rope_scaling": {"type": "linear", "rope_type": "dynamic", "factor": 2}})",
       "config.json: rope_scaling.type \"linear\" differs"},
      {"llama", R"({"rope_theta": 1e4, "rope_parameters": {"rope_theta": 1e6}})",
       "config.json: rope_parameters.rope_theta 1000000.0 differs"},
      {"llama",
       R"({"rope_scaling": {"type": "linear", "factor": 2}, "rope_parameters": {"rope_theta": 9}})",
       "config.json: rope_scaling {\"type\":\"linear\",\"factor\":2} differs"},
      {"llama", R"({"rope_parameters": {"rope_theta": 0}})",
       "config.json: rope_parameters.rope_theta 0 is not positive"},
      {"llama", R"({"rope_parameters": {"partial_rotary_factor": 0.5}})",
       "config.json: rope_parameters.partial_rotary_factor 0.5"},
      {"llama", R"({"rope_interleaved": true})", "config.json: rope_interleaved true changes"},
      {"llama", R"({"hidden_act": "relu2"})", "config.json: hidden_act \"relu2\" is not supported"},
      {"llama", R"({"quantization_config": {"bits": 4}})",
       "config.json: quantization_config {\"bits\":4} is not supported"},
      {"llama", R"({"auto_map": {"AutoConfig": "x.Y"}})", "config.json: auto_map {"},
      {"llama", R"({"architectures": ["MistralForCausalLM"]})",
       "config.json: architectures [\"MistralForCausalLM\"] is not"},
      {"llama", R"({"sliding_window": 8})", "config.json: sliding_window 8 changes"},
      {"llama", R"({"resid_scale": 2})", "config.json: resid_scale 2 is not known"},
      {"llama", R"({"dtype": "int8"})", "config.json: dtype \"int8\" is not supported"},
      {"llama", R"({"dtype": "float16", "torch_dtype": "float32"})",
       "config.json: torch_dtype \"float32\" differs"},
      {"llama", R"({"vocab_size": 32.0})", "config.json: vocab_size 32.0 is not an integer"},
      {"llama", R"({"num_hidden_layers": 0})", "config.json: num_hidden_layers 0 is not"},
      {"llama", R"({"vocab_size": 1e300})", "config.json: vocab_size 1e+300 is not"},
      {"llama", R"({"tie_word_embeddings": 1})", "config.json: tie_word_embeddings 1 is not true"},
      {"llama", R"({"pad_token_id": 32})", "config.json: pad_token_id 32 is not"},
      {"llama", R"({"num_attention_heads": 3})", "config.json: CausalLM: num_attention_heads 3"},
      {"llama", R"({"rms_norm_eps": "1e-5"})", "config.json: rms_norm_eps \"1e-5\" is not"},
      {"mistral", R"({"sliding_window": "8"})", "config.json: sliding_window \"8\" is not"},
      {"mistral", R"({"sliding_window": true})", "config.json: sliding_window true is not"},
      {"mistral", R"({"sliding_window": 0})", "config.json: sliding_window 0 is not"},
      {"mistral", R"({"attention_bias": true})", "config.json: attention_bias true changes"},
      {"mistral", R"({"layer_types": ["full_attention"]})", "config.json: layer_types ["},
      {"qwen2", R"({"layer_types": ["full_attention"]})",
       "config.json: CausalLM: layer_types has 1 entries"},
      {"qwen2", R"({"layer_types": ["full_attention", "chunked_attention"]})",
       "config.json: layer_types ["},
      {"qwen2", R"({"layer_types": ["full_attention", "sliding_attention"]})",
       "config.json: CausalLM: sliding_window 0 with layer_types that slide"},
      {"qwen2", R"({"attention_bias": false})", "config.json: attention_bias false changes"},
      {"qwen3", R"({"num_key_value_heads": 2, "head_dim": null})",
       "config.json: head_dim null is no size"},
      {"llama", R"({"rms_norm_eps": null})", "config.json: rms_norm_eps null"},
      {"llama", R"({"hidden_act": null})", "config.json: hidden_act null"},
      {"qwen2", R"({"use_sliding_window": true, "max_window_layers": null})",
       "config.json: max_window_layers null"},
      {"gemma2", "{}", "config.json: model_type \"gemma2\" is not supported"},
      {"gpt2", "{}", "config.json: model_type \"gpt2\" is not supported"},
      {"gemma", R"({"hidden_act": "silu"})", "config.json: hidden_act \"silu\" is not supported"},
      {"gemma", R"({"hidden_activation": "gelu"})",
       "config.json: hidden_activation \"gelu\" is not supported"},
      {"gemma", R"({"use_bidirectional_attention": true})",
       "config.json: use_bidirectional_attention true changes"},
  };
  for (const auto& c : cases)
    EXPECT_EQ(refusal(c.type, c.members).find(c.begin), 0U) << refusal(c.type, c.members);
  EXPECT_EQ(message_of([] {
              read(ConfigJson{{"vocab_size", 3}});
            }).find("model_type absent"),
            message_of([] {
              read(ConfigJson{{"vocab_size", 3}});
            }).find("model_type"));
  EXPECT_NE(message_of([] { read_config("/nowhere"); }).find("/nowhere/config.json"),
            std::string::npos);
}

TEST(CausalLM, S56AKeyIsIgnoredWhereAskedFor) {
  const char* const members = R"({"quantization_config": {"bits": 4}, "resid_scale": 2,
      "rope_scaling": {"type": "linear", "factor": 2, "beta": true, "finetuned": true}})";
  const ReadConfigOptions ignore{{"quantization_config", "resid_scale", "beta"}};
  EXPECT_EQ(read("llama", members, ignore).rope.factor, 2);
  EXPECT_THROW(read("llama", members, {{"quantization_config", "beta"}}), Error);
}

// The keys of HuggingFaceTB/SmolLM2-135M.
TEST(CausalLM, KeysWithoutEffectAreTaken) {
  const CausalLMConfig config = read(ConfigJson::parse(R"({
      "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
      "bos_token_id": 0, "eos_token_id": 0, "hidden_act": "silu", "hidden_size": 576,
      "initializer_range": 0.041666666666666664, "intermediate_size": 1536,
      "is_llama_config": true, "max_position_embeddings": 8192, "model_type": "llama",
      "num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3,
      "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_interleaved": false, "rope_scaling": null,
      "rope_theta": 100000, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
      "transformers_version": "4.40.1", "use_cache": true, "vocab_size": 49152})"));
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.rope, RopeConfig{.theta = 100000});
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.dtype, DType::BF16);
}

TEST(CausalLM, AnyDamageToAConfigIsReadOrRefusedInOneLine) {
  const ScratchFolder folder;
  std::mt19937 draw(3);
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text = text_of_file(folder_of(kCases[draw() % std::size(kCases)]) + "/config.json");
    const std::size_t at = draw() % text.size();
    if (i % 3 == 0) text.resize(at);
    if (i % 3 == 1) text[at] = static_cast<char>(draw() % 256);
    if (i % 3 == 2) text.replace(at, 1 + draw() % 4, "[]{}\":,-1e9"[draw() % 12] + std::string());
    folder.write("config.json", text);
    const std::string why = message_of([&] { read_config(folder.path("")); });
    EXPECT_TRUE(why.empty() || (why.find("config.json: ") != std::string::npos &&
                                why.find('\n') == std::string::npos))
        << text << why;
    refused += why.empty() ? 0 : 1;
  }
  EXPECT_GT(refused, 2000);
}

TEST(CausalLM, AbsentAndNullKeysHaveTheFamilysDefaults) {
  ConfigJson json = base();
  json.erase("num_key_value_heads");
  EXPECT_EQ(read(json).num_key_value_heads, 4);
  EXPECT_EQ(read("llama", R"({"num_key_value_heads": null})").num_key_value_heads, 4);
  EXPECT_EQ(read("llama", R"({"head_dim": null, "rope_scaling": null})").head_dim, 4);
  EXPECT_EQ(read("llama", R"({"rope_scaling": null, "rope_theta": 7})").rope.theta, 7);
  EXPECT_EQ(read("llama", R"({"rope_scaling": {}})").rope, RopeConfig{});
  EXPECT_EQ(read("llama", R"({"rope_scaling": {"rope_theta": 7}})").rope.theta, 7);
  EXPECT_FALSE(read("qwen2", "{}").tie_word_embeddings);
  EXPECT_EQ(read("llama", R"({"eos_token_id": [1, 2], "pad_token_id": -1})").pad_token_id, -1);
  EXPECT_EQ(read("llama", "{}").max_position_embeddings, 2048);
  EXPECT_EQ(read("llama", "{}").rms_norm_eps, 1e-6);
  const CausalLMConfig bare = read(ConfigJson{{"model_type", "mistral"}});
  EXPECT_EQ(bare.num_key_value_heads, 8);
  EXPECT_EQ(bare.sliding_window, 4096);
  EXPECT_EQ(bare.intermediate_size, 14336);
  EXPECT_EQ(read("mistral", R"({"sliding_window": null})").sliding_window, 0);
  EXPECT_EQ(read(ConfigJson{{"model_type", "qwen3"}}).head_dim, 128);
  EXPECT_EQ(read(ConfigJson{{"model_type", "qwen2"}}).vocab_size, 151936);
}

TEST(CausalLM, S52GemmasAreTiedAndHaveTheirOwnSizes) {
  const CausalLMConfig bare = read(ConfigJson{{"model_type", "gemma"}});
  EXPECT_EQ(bare.hidden_size, 3072);
  EXPECT_EQ(bare.num_hidden_layers, 28);
  EXPECT_EQ(bare.head_dim, 256);
  EXPECT_EQ(bare.num_key_value_heads, 16);
  EXPECT_EQ(bare.pad_token_id, 0);
  EXPECT_TRUE(bare.tie_word_embeddings && bare.norm_offset && bare.embedding_scale);
  EXPECT_EQ(read("gemma", R"({"pad_token_id": null})").pad_token_id, std::nullopt);
  // Older files say gelu, and mean that by tanh.
  for (const char* members : {"{}", R"({"hidden_act": "gelu", "hidden_activation": null})",
                              R"({"hidden_activation": "gelu_pytorch_tanh"})"})
    EXPECT_EQ(read("gemma", members).hidden_act, HiddenAct::GeluTanh);
}

TEST(CausalLM, QwensSlideInTheLayersThatTheConfigNames) {
  const std::vector<LayerType> second{LayerType::Full, LayerType::Sliding};
  EXPECT_EQ(read("qwen2", R"({"sliding_window": 8, "max_window_layers": 1})").sliding_window, 0);
  EXPECT_EQ(read("qwen2", R"({"use_sliding_window": false, "sliding_window": 8})").sliding_window,
            0);
  const CausalLMConfig one =
      read("qwen3", R"({"use_sliding_window": true, "sliding_window": 8, "max_window_layers": 1})");
  EXPECT_EQ(one.sliding_window, 8);
  EXPECT_EQ(one.layer_types, second);
  EXPECT_FALSE(slides(one, 0));
  EXPECT_TRUE(slides(one, 1));
  // After 28 layers where none says.
  EXPECT_EQ(read("qwen2", R"({"use_sliding_window": true, "sliding_window": 8})").sliding_window,
            0);
  const CausalLMConfig all =
      read("qwen2", R"({"use_sliding_window": true, "sliding_window": 8, "max_window_layers": 0})");
  EXPECT_EQ(all.sliding_window, 8);
  EXPECT_TRUE(all.layer_types.empty() && slides(all, 0));
  EXPECT_EQ(
      read("qwen2", R"({"use_sliding_window": true, "sliding_window": 8, "max_window_layers": 0,
                              "layer_types": ["full_attention", "sliding_attention"]})")
          .layer_types,
      second);
}

TEST(CausalLM, AConfigThatWasReadIsWrittenAsItWas) {
  const ScratchFolder folder;
  for (const std::string name : kCases) {
    for (const char* file : {"/config.json", "/config_of_4.json"}) {
      CausalLMConfig config = read_config(folder_of(name) + file);
      const std::string was = text_of_file(folder_of(name) + file);
      write_config(config, folder.path(""));
      EXPECT_EQ(text_of_file(folder.path("config.json")), was);
      config.dtype = DType::BF16;
      write_config(config, folder.path(""));
      EXPECT_EQ(read_config(folder.path("")), config);
      ConfigJson json = parse_config(text_of_file(folder.path("config.json")), "written");
      for (const char* key : {"dtype", "torch_dtype"}) {
        EXPECT_EQ(json.value(key, "bfloat16"), "bfloat16");
        json.erase(key);
      }
      ConfigJson before = parse_config(was, "read");
      before.erase("dtype"), before.erase("torch_dtype");
      EXPECT_EQ(json, before);
    }
  }
}

// COSHARD_KEEP_CONFIGS=DIR keeps them there, for `make.py --read DIR`.
TEST(CausalLM, AConfigOfTheProgramIsWrittenInBothSpellings) {
  const ScratchFolder folder;
  const char* const keep = std::getenv("COSHARD_KEEP_CONFIGS");
  for (const std::string name : kCases) {
    CausalLMConfig config = read_config(folder_of(name));
    config.read_from = {};
    const std::string written =
        keep != nullptr ? std::string(keep) + "/" + name : folder.path(name);
    std::filesystem::create_directories(written);
    write_config(config, written);
    EXPECT_EQ(read_config(written), config) << name;
    const ConfigJson json = parse_config(text_of_file(written + "/config.json"), "written");
    EXPECT_EQ(json.at("dtype"), json.at("torch_dtype"));
    EXPECT_EQ(json.at("rope_theta"), json.at("rope_parameters").at("rope_theta"));
  }
  CausalLMConfig changed = read_config(folder_of("llama_gelu"));
  changed.num_hidden_layers = 1;
  write_config(changed, folder.path(""));
  EXPECT_EQ(read_config(folder.path("")), changed);
  changed.qk_norm = true;
  EXPECT_NE(message_of([&] { write_config(changed, folder.path("")); }).find("llama"),
            std::string::npos);
}

}  // namespace
}  // namespace coshard::nn
