// Prompts of conversations; tests/hf asks transformers.
#include "examples/llama/chat_template.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include <coshard/runtime/error.h>

namespace coshard::llama {
namespace {

const std::vector<Message> kAsked{{"user", " Hi "}};

class ChatTemplate : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string made = (std::filesystem::temp_directory_path() / "chat-XXXXXX").string();
    ASSERT_NE(::mkdtemp(made.data()), nullptr);
    folder_ = made;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(const char* name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << text;
  }
  std::string folder_;
};

TEST_F(ChatTemplate, ByName) {
  EXPECT_EQ(chat_prompt(folder_, "chatml", kAsked),
            "<|im_start|>user\n Hi <|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(chat_prompt(folder_, "llama3", kAsked),
            "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
  EXPECT_EQ(chat_prompt(folder_, "mistral", kAsked), "<s>[INST]  Hi  [/INST]");
  EXPECT_EQ(chat_prompt(folder_, "gemma", kAsked),
            "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n");
  EXPECT_EQ(chat_prompt(folder_, "none", kAsked), " Hi ");
}

TEST_F(ChatTemplate, ByTheTextOfTheFolder) {
  const std::string chatml =
      "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + "
      "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}"
      "{{ '<|im_start|>assistant\n' }}{% endif %}";
  write("chat_template.jinja", chatml);
  EXPECT_EQ(chat_prompt(folder_, "", kAsked), chat_prompt(folder_, "chatml", kAsked));
  std::string windows = chatml;
  for (std::size_t at = 0; (at = windows.find('\n', at)) != std::string::npos; at += 2)
    windows.replace(at, 1, "\r\n");
  for (const std::string& text : {chatml + "\n", chatml + "\r\n", windows}) {
    write("chat_template.jinja", text);
    EXPECT_EQ(chat_prompt(folder_, "", kAsked), chat_prompt(folder_, "chatml", kAsked));
  }
  write("chat_template.jinja", chatml + " ");
  EXPECT_THROW(chat_prompt(folder_, "", kAsked), Error);
}

TEST_F(ChatTemplate, TheLastDefaultOfAListIsTaken) {
  const auto with = [&](const std::string& templates) {
    write("tokenizer_config.json", R"({"chat_template":)" + templates + "}");
    try {
      return chat_prompt(folder_, "", kAsked);
    } catch (const Error& error) {
      return std::string(error.message());
    }
  };
  EXPECT_NE(with(R"([{"name":"default","template":"ab"},{"name":"default","template":"abc"}])")
                .find("of 3 bytes"),
            std::string::npos);
  EXPECT_NE(with(R"({"default":"ab","rag":"a"})").find("of 2 bytes"), std::string::npos);
  EXPECT_NE(with(R"({"rag":"a"})").find("chat_template {"), std::string::npos);
}

TEST_F(ChatTemplate, MarkersAreThoseOfTheTemplate) {
  EXPECT_EQ(chat_markers(folder_, "chatml"),
            (std::vector<std::string>{"<|im_start|>", "<|im_end|>"}));
  EXPECT_EQ(chat_markers(folder_, "mistral"), (std::vector<std::string>{"<s>", "</s>"}));
  EXPECT_EQ(chat_markers(folder_, "none"), std::vector<std::string>());
  write("tokenizer_config.json", R"({"bos_token":"<B>"})");
  EXPECT_EQ(chat_markers(folder_, "llama3").at(0), "<B>");
  EXPECT_EQ(chat_markers(folder_, "gemma").at(0), "<B>");
}

TEST_F(ChatTemplate, TokensOfTheFolder) {
  write("tokenizer_config.json", R"({"bos_token":{"content":"<B>"},"eos_token":"<E>"})");
  EXPECT_EQ(
      chat_prompt(folder_, "mistral", std::vector<Message>{{"user", "a"}, {"assistant", "b"}}),
      "<B>[INST] a [/INST]b<E>");
}

TEST_F(ChatTemplate, WhatNoTemplateKnowsIsRefused) {
  const auto message_of = [&](std::string_view name, const std::vector<Message>& messages) {
    try {
      chat_prompt(folder_, name, messages);
      return std::string();
    } catch (const Error& error) {
      return std::string(error.message());
    }
  };
  EXPECT_NE(message_of("", kAsked).find("--template chatml, llama3"), std::string::npos);
  EXPECT_NE(message_of("vicuna", kAsked).find("vicuna"), std::string::npos);
  EXPECT_NE(message_of("gemma", {{"system", "s"}}).find("system"), std::string::npos);
  EXPECT_NE(message_of("mistral", {{"user", "a"}, {"user", "b"}}).find("message 1"),
            std::string::npos);
  EXPECT_NE(message_of("chatml", {}), "");
  EXPECT_NE(message_of("chatml", {{"tool", "t"}}).find("tool"), std::string::npos);
}

}  // namespace
}  // namespace coshard::llama
