#include <coshard/styles/nn/gpt2_config.h>

#include <gtest/gtest.h>

#include "styles/nn/config_text.h"
#include "tests/dtensor/checkpoint/stored_files.h"

namespace coshard::nn {
namespace {

using testing::message_of;
using testing::ScratchFolder;

// Of a folder with these members beside model_type.
GPT2Config read(const char* members, const ReadConfigOptions& options = {}) {
  ConfigJson json{{"model_type", "gpt2"}};
  json.update(ConfigJson::parse(members));
  const ScratchFolder folder;
  folder.write("config.json", json.dump());
  return read_gpt2_config(folder.path(""), options);
}

std::string refusal(const char* members) {
  const std::string text = message_of([&] { read(members); });
  return text.substr(std::min(text.find("config.json"), text.size()));
}

TEST(GPT2Config, HasTheDefaultsOfGPT2) {
  GPT2Config config;
  config.n_inner = 4 * 768;
  EXPECT_EQ(read("{}"), config);
  EXPECT_EQ(read(R"({"n_inner": null})"), config);
  EXPECT_EQ(read(R"({"n_embd": 48, "n_head": 4})").n_inner, 192);
}

TEST(GPT2Config, ReadsWhatTransformersWrites) {
  for (const std::string name : {"gpt2", "gpt2_scales"}) {
    const std::string folder = COSHARD_TEST_MODELS "/" + name;
    const GPT2Config five = read_gpt2_config(folder);
    EXPECT_EQ(five, read_gpt2_config(folder + "/config_of_4.json"));
    EXPECT_EQ(five.n_inner, 24);
    EXPECT_EQ(five.scale_attn_by_inverse_layer_idx, name == "gpt2_scales");
    EXPECT_EQ(five.activation_function, name == "gpt2" ? HiddenAct::GeluTanh : HiddenAct::Gelu);
  }
}

TEST(GPT2Config, IsWrittenAsItWasRead) {
  const char* const members = R"({"n_ctx": 1024, "eos_token_id": 7, "n_layer": 3})";
  GPT2Config config = read(members);
  const std::string text = config.read_from.text;
  EXPECT_EQ(config_text(config), text);
  config.dtype = DType::BF16;
  const ConfigJson typed = ConfigJson::parse(config_text(config));
  EXPECT_EQ(typed.at("dtype"), "bfloat16");
  EXPECT_EQ(typed.at("n_ctx"), 1024);
  config.n_layer = 4;
  EXPECT_FALSE(ConfigJson::parse(config_text(config)).contains("n_ctx"));
  config.activation_function = HiddenAct::Gelu;
  const ScratchFolder folder;
  folder.write("config.json", config_text(config));
  GPT2Config again = read_gpt2_config(folder.path(""));
  EXPECT_EQ(again, config);
}

TEST(GPT2Config, IgnoredAttentionDropoutIsNone) {
  EXPECT_EQ(read("{}").attn_pdrop, 0.1);
  EXPECT_EQ(read(R"({"attn_pdrop": 0.2})", {.ignore = {"attn_pdrop"}}).attn_pdrop, 0);
  EXPECT_EQ(read("{}", {.ignore = {"attn_pdrop"}}).attn_pdrop, 0);
}

TEST(GPT2Config, RefusesWhatChangesTheModel) {
  const struct {
    const char *members, *begin;
  } cases[] = {
      {R"({"model_type": "gpt_neo"})", "config.json: model_type \"gpt_neo\" is not gpt2"},
      {R"({"architectures": ["GPT2ForTokenClassification"]})", "config.json: architectures"},
      {R"({"activation_function": "relu2"})", "config.json: activation_function \"relu2\""},
      {R"({"add_cross_attention": true})", "config.json: add_cross_attention true changes"},
      {R"({"attn_pdrop": "0"})", "config.json: attn_pdrop \"0\" is not a number"},
      {R"({"resid_pdrop": 1.5})", "config.json: GPT2: resid_pdrop 1.5"},
      {R"({"hidden_size": 768})", "config.json: hidden_size 768 is not known"},
      {R"({"layer_norm_epsilon": 0})", "config.json: layer_norm_epsilon 0 is not positive"},
      {R"({"n_head": 5})", "config.json: GPT2: n_embd 768 is not divisible by n_head 5"},
      {R"({"n_inner": 0})", "config.json: n_inner 0 is not an integer from 1"},
      {R"({"n_layer": null})", "config.json: n_layer null is no value"},
      {R"({"quantization_config": {}})", "config.json: quantization_config {} is not supported"},
      {R"({"scale_attn_weights": 1})", "config.json: scale_attn_weights 1 is not true or false"},
  };
  for (const auto& [members, begin] : cases)
    EXPECT_EQ(refusal(members).substr(0, std::string_view(begin).size()), begin) << members;
}

TEST(GPT2Config, PassesOverWhatHasNoEffect) {
  EXPECT_EQ(read(R"({"summary_type": "last", "summary_use_proj": false, "pad_token_id": 3,
                     "reorder_and_upcast_attn": true, "use_cache": false, "n_ctx": 512})"),
            read("{}"));
}

}  // namespace
}  // namespace coshard::nn
