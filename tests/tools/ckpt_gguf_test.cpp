// GGUF files: what is read, what is refused, and the folder that becomes of them. tests/hf/gguf_test.py asks
// gguf and transformers.
#include <gtest/gtest.h>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include <coshard/runtime/error.h>
#include "dtensor/checkpoint/model_folder.h"
#include "tests/dtensor/checkpoint/stored_files.h"
#include "tests/tools/gguf_file.h"
#include "tools/ckpt/ckpt.h"
#include "tools/ckpt/convert_gguf.h"
#include "tools/ckpt/dequantize.h"
#include "tools/ckpt/gguf_model.h"
#include "tools/ckpt/gguf_tokenizer.h"

namespace coshard::tools {
namespace {

using testing::gguf_text;
using testing::GgufBytes;
using testing::message_of;
using testing::raw;
using testing::ScratchFolder;
using testing::source_of;

std::string refusal_of(const std::string& bytes) {
  return message_of([&] { Gguf file(source_of(bytes)); });
}

TEST(Gguf, ReadsValuesAndTensors) {
  GgufBytes made;
  made.u32("n", 7).f32("x", 0.5F).flag("b", true).text("t", "é").texts("l", {"a", "", "c"});
  made.i32s("i", {1, -2}).value("u", 10, raw<std::uint64_t>(9));
  made.floats("w", {2, 3}, {1, 2, 3, 4, 5, 6}).floats("v", {1}, {7});
  for (const std::uint32_t version : {2U, 3U}) {
    made.version = version;
    const Gguf file(source_of(made.bytes()));
    EXPECT_EQ(file.integer("n"), 7);
    EXPECT_EQ(file.integer("u"), 9);
    EXPECT_EQ(file.single("x"), 0.5F);
    EXPECT_EQ(file.flag("b"), true);
    EXPECT_EQ(file.text("t"), "é");
    EXPECT_EQ(file.texts("l"), (std::vector<std::string>{"a", "", "c"}));
    EXPECT_EQ(file.integers("i"), (std::vector<std::int64_t>{1, -2}));
    EXPECT_EQ(file.integer("absent"), std::nullopt);
    EXPECT_EQ(file.keys("l"), std::vector<std::string>{"l"});
    ASSERT_EQ(file.tensors().size(), 2U);
    EXPECT_EQ(file.tensors()[0].shape, (std::vector<std::uint64_t>{2, 3}));
    EXPECT_EQ(file.tensors()[0].bytes, 24U);
    EXPECT_EQ(file.tensors()[1].begin, file.tensors()[0].begin + 32);
    EXPECT_THROW(static_cast<void>(file.integer("t")), Error);
    EXPECT_THROW(static_cast<void>(file.texts("i")), Error);
  }
}

TEST(Gguf, NoCutFileIsTaken) {
  GgufBytes made;
  made.u32("n", 7).texts("l", {"a", "bc"}).floats("w", {2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  const std::string whole = made.bytes();
  EXPECT_EQ(refusal_of(whole), "");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::string text = refusal_of(whole.substr(0, size));
    EXPECT_TRUE(text.starts_with("f: ")) << size << ": " << text;
  }
}

TEST(Gguf, WhatContradictsTheFileIsRefused) {
  const auto has = [](const GgufBytes& made, std::string_view word) {
    const std::string text = refusal_of(made.bytes());
    EXPECT_NE(text.find(word), std::string::npos) << word << ": " << text;
  };
  GgufBytes made;
  made.version = 1;
  has(made, "version 1");
  made.version = 0x03000000;
  has(made, "byte order");
  made = {};
  made.tensor_count = std::uint64_t{1} << 60;
  has(made, "ends at byte 32");
  made = {};
  made.value_count = ~std::uint64_t{0};
  has(made, "ends at byte 32");
  has(GgufBytes().value("k", 8, raw<std::uint64_t>(std::uint64_t{1} << 62)), "within k");
  has(GgufBytes().value("k", 9, raw<std::uint32_t>(4) + raw<std::uint64_t>(1ULL << 62)), "k has");
  has(GgufBytes().value("k", 9, raw<std::uint32_t>(9) + raw<std::uint64_t>(0)), "type 9");
  has(GgufBytes().value("k", 13, ""), "type 13");
  has(GgufBytes().u32("k", 1).u32("k", 1), "twice");
  has(GgufBytes().text("k", "\xff"), "UTF-8");
  for (const char* text : {"\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
                           "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xc3", "\xe2\x82", "\xc3("})
    has(GgufBytes().text("k", text), "UTF-8");
  has(GgufBytes().u32("general.alignment", 3), "alignment");
  has(GgufBytes().tensor("w", {1}, 14, ""), "'w' is of type Q6_K");
  has(GgufBytes().tensor("w", {1}, 77, ""), "number 77");
  has(GgufBytes().tensor("w", {1, 1, 1, 1, 1}, 0, ""), "5 dimensions");
  has(GgufBytes().tensor("w", {48}, 8, std::string(51, '\0')), "blocks of 32");
  has(GgufBytes().tensor("w", {1ULL << 40, 1ULL << 40}, 0, ""), "'w'");
  has(GgufBytes().floats("w", {1}, {1}).floats("w", {1}, {1}), "twice");
}

TEST(Gguf, TextsAndListsHaveAMostOfBytes) {
  EXPECT_EQ(refusal_of(GgufBytes().text("k", "aé€😀\xf4\x8f\xbf\xbf").bytes()), "");
  EXPECT_EQ(refusal_of(GgufBytes().u32(std::string(65535, 'k'), 1).bytes()), "");
  EXPECT_CONTAINS(refusal_of(GgufBytes().u32(std::string(65536, 'k'), 1).bytes()),
                  "key 0 has 65536 bytes; at most 65535");
  EXPECT_CONTAINS(refusal_of(GgufBytes().text("k", std::string((1 << 24) + 1, 'x')).bytes()),
                  "k has 16777217 bytes");
  GgufBytes many;
  for (const char* key : {"a", "b", "c", "d"}) many.text(key, std::string(1 << 24, 'x'));
  EXPECT_CONTAINS(refusal_of(many.bytes()), "the texts until d have 67108868 bytes");
  const std::uint64_t count = (1 << 22) + 1;
  EXPECT_CONTAINS(
      refusal_of(GgufBytes()
                     .value("k", 9, raw<std::uint32_t>(8) + raw(count) + std::string(count * 8, 0))
                     .bytes()),
      "k has 4194305 texts");
  const GgufBytes numbers = GgufBytes().i32s("k", std::vector<std::int32_t>(count));
  EXPECT_CONTAINS(
      message_of([&] { static_cast<void>(Gguf(source_of(numbers.bytes())).integers("k")); }),
      "k has 4194305 elements");
}

TEST(Gguf, TensorsThatOverlapOrLieOffTheGridAreRefused) {
  const std::string whole = GgufBytes()
                                .floats("a", {8}, std::vector<float>(8))
                                .floats("b", {8}, std::vector<float>(8))
                                .bytes();
  const std::size_t place = whole.find(gguf_text("b")) + gguf_text("b").size() + 4 + 8 + 4;
  for (const auto& [begin, word] :
       {std::pair{0U, "overlap"}, {33U, "multiple of 32"}, {64U, "not lie"}}) {
    std::string text = whole;
    text.replace(place, 8, raw<std::uint64_t>(begin));
    EXPECT_NE(refusal_of(text).find(word), std::string::npos) << refusal_of(text);
  }
}

// ---- values

std::vector<float> values_of(GgufType type, const std::string& block, std::size_t count) {
  std::vector<float> values(count);
  dequantize(type, std::as_bytes(std::span(block)), values);
  return values;
}

TEST(Dequantize, BlocksOf8Bits) {
  std::string block = raw(Float16(0.5F));
  for (int i = 0; i < 32; ++i) block += static_cast<char>(i - 16);
  const std::vector<float> values = values_of(GgufType::Q8_0, block, 32);
  for (int i = 0; i < 32; ++i)
    EXPECT_EQ(values[static_cast<std::size_t>(i)], 0.5F * static_cast<float>(i - 16));
}

TEST(Dequantize, BlocksOf4Bits) {
  std::string nibbles;
  for (int i = 0; i < 16; ++i) nibbles += static_cast<char>(i | (15 - i) << 4);
  const auto symmetric = values_of(GgufType::Q4_0, raw(Float16(2.0F)) + nibbles, 32);
  const auto shifted =
      values_of(GgufType::Q4_1, raw(Float16(2.0F)) + raw(Float16(-1.5F)) + nibbles, 32);
  for (int i = 0; i < 16; ++i) {
    const auto low = static_cast<std::size_t>(i);
    EXPECT_EQ(symmetric[low], 2.0F * static_cast<float>(i - 8));
    EXPECT_EQ(symmetric[low + 16], 2.0F * static_cast<float>(7 - i));
    EXPECT_EQ(shifted[low], 2.0F * static_cast<float>(i) - 1.5F);
    EXPECT_EQ(shifted[low + 16], 2.0F * static_cast<float>(15 - i) - 1.5F);
  }
}

TEST(Dequantize, ShortFloats) {
  EXPECT_EQ(values_of(GgufType::F16, raw(Float16(1.5F)), 1)[0], 1.5F);
  EXPECT_EQ(values_of(GgufType::BF16, raw(BFloat16(-3.0F)), 1)[0], -3.0F);
}

// ---- a model of one layer: hidden 4, one head of 4, one layer

constexpr std::uint32_t kInner = 3;

GgufBytes tokens(GgufBytes made, std::string_view pre = "smollm") {
  made.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", pre);
  made.texts("tokenizer.ggml.tokens", {"<s>", "</s>", "a", "b", "ab"});
  made.i32s("tokenizer.ggml.token_type", {3, 3, 1, 1, 1}).texts("tokenizer.ggml.merges", {"a b"});
  return made.u32("tokenizer.ggml.bos_token_id", 0).u32("tokenizer.ggml.eos_token_id", 1);
}

GgufBytes sizes(const std::string& architecture) {
  const std::string a = architecture + ".";
  GgufBytes made;
  made.text("general.architecture", architecture)
      .u32(a + "block_count", 1)
      .u32(a + "context_length", 16);
  made.u32(a + "embedding_length", 4).u32(a + "feed_forward_length", kInner);
  return made.u32(a + "attention.head_count", 1).f32(a + "attention.layer_norm_rms_epsilon", 1e-5F);
}

GgufBytes weights(GgufBytes made) {
  const auto matrix = [&](const std::string& name, std::uint64_t rows, std::uint64_t columns) {
    std::vector<float> values(rows * columns);
    std::iota(values.begin(), values.end(), 0.0F);
    made.floats(name, {rows, columns}, values);
  };
  matrix("token_embd.weight", 5, 4);
  made.floats("output_norm.weight", {4}, {1, 1, 1, 1});
  for (const char* norm : {"attn_norm", "ffn_norm"})
    made.floats(str_cat("blk.0.", norm, ".weight"), {4}, {1, 1, 1, 1});
  for (const char* square : {"attn_q", "attn_k", "attn_v", "attn_output"})
    matrix(str_cat("blk.0.", square, ".weight"), 4, 4);
  matrix("blk.0.ffn_gate.weight", kInner, 4);
  matrix("blk.0.ffn_up.weight", kInner, 4);
  matrix("blk.0.ffn_down.weight", 4, kInner);
  return made;
}

std::string model_refusal(const GgufBytes& made) {
  return message_of([&] { GgufModel::of(Gguf(source_of(made.bytes()))); });
}

TEST(GgufModel, ReadsTheNumbersOfALlama) {
  const GgufModel model = GgufModel::of(Gguf(source_of(weights(sizes("llama")).bytes())));
  EXPECT_EQ(model.config.hidden_size, 4);
  EXPECT_EQ(model.config.vocab_size, 5);
  EXPECT_EQ(model.config.rms_norm_eps, 1e-5);
  EXPECT_TRUE(model.config.tie_word_embeddings);
  EXPECT_EQ(model.tensors.size(), 11U);
}

TEST(GgufModel, AHeadOfItsOwnIsNotTied) {
  GgufBytes made = weights(sizes("llama"));
  made.floats("output.weight", {5, 4}, std::vector<float>(20));
  EXPECT_FALSE(GgufModel::of(Gguf(source_of(made.bytes()))).config.tie_word_embeddings);
}

TEST(GgufModel, OtherModelsAreRefused) {
  const auto has = [](const GgufBytes& made, std::string_view word) {
    EXPECT_NE(model_refusal(made).find(word), std::string::npos)
        << word << ": " << model_refusal(made);
  };
  has(weights(sizes("gemma")), "gemma");
  has(weights(sizes("llama").u32("llama.expert_count", 8)), "llama.expert_count");
  has(weights(sizes("llama").text("llama.rope.scaling.type", "yarn")), "yarn");
  has(weights(sizes("llama").u32("llama.rope.dimension_count", 2)), "rope.dimension_count");
  has(weights(sizes("llama")).floats("rope_freqs.weight", {2}, {1, 1}), "rope_freqs.weight");
  has(weights(sizes("llama")).floats("blk.0.attn_q.bias", {4}, {1, 1, 1, 1}), "attn_q.bias");
  has(weights(sizes("llama")).floats("output.weight", {1, 4}, {1, 1, 1, 1}), "output.weight");
  has(weights(sizes("qwen2")), "attn_k.bias");
  has(sizes("llama"), "token_embd.weight");
  has(weights(GgufBytes().text("general.architecture", "llama")), "block_count");
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float base : {kInf, std::numeric_limits<float>::quiet_NaN(), 0.0F, -1.0F})
    has(weights(sizes("llama").f32("llama.rope.freq_base", base)), "f: llama.rope.freq_base ");
}

// ---- the tokenizer

nlohmann::json file_of(const TextFiles& files, const std::string& name) {
  for (const auto& [known, text] : files)
    if (known == name) return nlohmann::json::parse(text);
  return nullptr;
}

TEST(GgufTokenizer, WritesTheFilesOfAFolder) {
  const GgufBytes made =
      tokens({}).text("tokenizer.chat_template", "{{ x }}").u32("tokenizer.ggml.eot_token_id", 0);
  const TextFiles files = tokenizer_files(Gguf(source_of(made.bytes())), 5, 16);
  const nlohmann::json tokenizer = file_of(files, "tokenizer.json");
  EXPECT_EQ(tokenizer["model"]["vocab"]["ab"], 4);
  EXPECT_EQ(tokenizer["model"]["merges"], nlohmann::json({"a b"}));
  EXPECT_EQ(tokenizer["added_tokens"].size(), 2U);
  EXPECT_EQ(tokenizer["pre_tokenizer"]["pretokenizers"][0]["type"], "Digits");
  EXPECT_TRUE(tokenizer["post_processor"].is_null());
  EXPECT_EQ(file_of(files, "generation_config.json")["eos_token_id"], nlohmann::json({1, 0}));
  const nlohmann::json config = file_of(files, "tokenizer_config.json");
  EXPECT_EQ(config["chat_template"], "{{ x }}");
  EXPECT_EQ(config["bos_token"], "<s>");
}

TEST(GgufTokenizer, LlamaBeginsWithBos) {
  const auto processor_of = [](const GgufBytes& made) {
    return file_of(tokenizer_files(Gguf(source_of(made.bytes())), 5, 16),
                   "tokenizer.json")["post_processor"];
  };
  EXPECT_EQ(processor_of(tokens({}, "llama-bpe"))["single"][0]["SpecialToken"]["id"], "<s>");
  EXPECT_TRUE(
      processor_of(tokens({}, "llama-bpe").flag("tokenizer.ggml.add_bos_token", false)).is_null());
  EXPECT_EQ(processor_of(
                tokens({}, "gpt-2")
                    .flag("tokenizer.ggml.add_eos_token", true))["single"][1]["SpecialToken"]["id"],
            "</s>");
}

TEST(GgufTokenizer, OtherKindsAreRefused) {
  const auto has = [](const GgufBytes& made, std::string_view word) {
    const std::string text =
        message_of([&] { tokenizer_files(Gguf(source_of(made.bytes())), 5, 16); });
    EXPECT_NE(text.find(word), std::string::npos) << word << ": " << text;
  };
  has(tokens({}, "deepseek-llm"), "deepseek-llm");
  has(GgufBytes().text("tokenizer.ggml.model", "llama"), "tokenizer.ggml.model llama");
  has(GgufBytes().text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "gpt-2"),
      "tokenizer.ggml.tokens");
  has(tokens({}).u32("tokenizer.ggml.padding_token_id", 5), "padding_token_id 5");
}

TEST(GgufTokenizer, WhatNoReaderTakesIsRefused) {
  const auto refusal = [](const std::vector<std::string>& texts, const std::string& merge) {
    GgufBytes made;
    made.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "gpt-2");
    made.texts("tokenizer.ggml.tokens", texts).texts("tokenizer.ggml.merges", {merge});
    made.i32s("tokenizer.ggml.token_type", {1, 1, 1, 3});
    return message_of([&] { tokenizer_files(Gguf(source_of(made.bytes())), 5, 16); });
  };
  EXPECT_EQ(refusal({"a", "b", "ab", "<s>"}, "a b"), "");
  EXPECT_CONTAINS(refusal({"a", "b", "a", "<s>"}, "a b"),
                  "f: tokenizer.ggml.tokens[2] 'a' is token 0 as well");
  EXPECT_CONTAINS(refusal({"a", "b", "ab", ""}, "a b"), "tokenizer.ggml.tokens[3] '' is empty");
  for (const char* merge : {"a c", "b a", "ab", "a b ab", " a", "a ", ""})
    EXPECT_CONTAINS(refusal({"a", "b", "ab", "<s>"}, merge),
                    str_cat("tokenizer.ggml.merges[0] '", merge, "'"));
}

// A special one would be missing in texts; that of the ends is special of any type.
TEST(GgufTokenizer, AnOrdinaryTokenForPaddingStaysOrdinary) {
  GgufBytes made;
  made.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "smollm");
  made.texts("tokenizer.ggml.tokens", {"a", "b", "ab"}).texts("tokenizer.ggml.merges", {"a b"});
  made.i32s("tokenizer.ggml.token_type", {1, 1, 1}).u32("tokenizer.ggml.eos_token_id", 2);
  made.u32("tokenizer.ggml.padding_token_id", 0).u32("tokenizer.ggml.unknown_token_id", 1);
  const TextFiles files = tokenizer_files(Gguf(source_of(made.bytes())), 3, 16);
  const nlohmann::json added = file_of(files, "tokenizer.json")["added_tokens"];
  ASSERT_EQ(added.size(), 1U);
  EXPECT_EQ(added[0]["content"], "ab");
  EXPECT_EQ(added[0]["special"], true);
  EXPECT_FALSE(file_of(files, "tokenizer_config.json").contains("pad_token"));
}

// ---- the folder

TEST(ConvertGguf, WritesAFolderInTheOrderOfHuggingFace) {
  const ScratchFolder scratch;
  const std::string from = scratch.path("m.gguf"), to = scratch.path("m");
  std::ofstream(from, std::ios::binary) << weights(tokens(sizes("llama"))).bytes();
  ASSERT_TRUE(is_gguf(from));
  std::ostringstream out;
  convert(from, to, {.dtype = DType::BF16}, true, out);
  EXPECT_EQ(nlohmann::json::parse(out.str())["cast"], 11);
  const ModelFolder model(to);
  EXPECT_EQ(model.size(), 11U);
  const auto values = [&](std::string_view name) {
    const auto [file, tensor] = *model.find(name);
    std::ifstream in(model.files()[file].path(), std::ios::binary);
    in.seekg(static_cast<std::streamoff>(model.files()[file].data_begin() + tensor.begin));
    std::vector<BFloat16> read(tensor.elements());
    in.read(reinterpret_cast<char*>(read.data()), static_cast<std::streamsize>(read.size() * 2));
    return std::vector<float>(read.begin(), read.end());
  };
  const std::vector<float> query = values("model.layers.0.self_attn.q_proj.weight");
  EXPECT_EQ((std::vector<float>{query[0], query[4], query[8], query[12]}),
            (std::vector<float>{0, 8, 4, 12}));
  const std::vector<float> value = values("model.layers.0.self_attn.v_proj.weight");
  EXPECT_EQ(value[4], 4);
  EXPECT_FALSE(model.find("lm_head.weight"));
}

}  // namespace
}  // namespace coshard::tools
