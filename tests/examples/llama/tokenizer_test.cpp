// Tokenizer and TextStream: the answers of `tokenizers` (make_tokenizer.py), and what is refused.
#include "examples/llama/tokenizer.h"

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/examples/llama/json_text.h"

namespace coshard::llama {
namespace {

using Ids = std::vector<std::int64_t>;

nlohmann::json answers() {
  std::ifstream in(COSHARD_TOKENIZER_FILES "/answers.json");
  return nlohmann::json::parse(in);
}

TEST(Tokenizer, AnswersAsTokenizersDoes) {
  const Tokenizer tokenizer = Tokenizer::open(COSHARD_TOKENIZER_FILES);
  for (const auto& answer : answers()) {
    const auto text = answer.at("text").get<std::string>();
    const Ids ids = tokenizer.encode(text);
    EXPECT_EQ(ids, answer.at("ids").get<Ids>()) << text;
    EXPECT_EQ(tokenizer.encode(text, false), answer.at("bare").get<Ids>()) << text;
    EXPECT_EQ(tokenizer.decode(ids), answer.at("decoded").get<std::string>()) << text;
    EXPECT_EQ(tokenizer.decode(ids, true), answer.at("plain").get<std::string>()) << text;
  }
  EXPECT_EQ(tokenizer.size(), 326);
}

TEST(Tokenizer, IdsOfNames) {
  const Tokenizer tokenizer = Tokenizer::open(COSHARD_TOKENIZER_FILES);
  EXPECT_EQ(tokenizer.id_of("<|begin|>"), 320);
  EXPECT_EQ(tokenizer.decode(Ids{*tokenizer.id_of("Ġthe")}), " the");
  EXPECT_EQ(tokenizer.id_of("absent"), std::nullopt);
  EXPECT_EQ(tokenizer.decode(Ids{-1, 326, 1 << 30}), "");
}

TEST(Tokenizer, ThreadsEncodeTheSame) {
  const Tokenizer tokenizer = Tokenizer::open(COSHARD_TOKENIZER_FILES);
  const std::string text = "the quick brown fox isn't 1234 dogs\n";
  const Ids expected = tokenizer.encode(text);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int n = 0; n < 100; ++n) EXPECT_EQ(tokenizer.encode(text), expected);
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(Tokenizer, TextThatIsNoUtf8IsRefused) {
  const Tokenizer tokenizer = Tokenizer::of_text(tokenizer_text(), "f");
  EXPECT_THROW(tokenizer.encode("a\xff"), Error);
}

TEST(Tokenizer, WhatChangesTheResultIsRefused) {
  expect_refused(tokenizer_text(",\"dropout\":0.1"), {"model.dropout", "0.1"});
  expect_refused(tokenizer_text(",\"byte_fallback\":true"), {"model.byte_fallback"});
  expect_refused(tokenizer_text(",\"end_of_word_suffix\":\"</w>\""), {"end_of_word_suffix"});
  expect_refused(tokenizer_text(",\"new\":1"), {"model.new", "1"});
  expect_refused(tokenizer_text("", ",\"new\":1"), {"new", "1"});
  expect_refused(R"({"model":{"type":"Unigram","vocab":[]}})", {"model.type", "Unigram"});
  expect_refused(R"({"truncation":{"max_length":3}})", {"truncation", "max_length", "null"});
  expect_refused(tokenizer_text("", R"(,"post_processor":{"type":"BertProcessing"})"),
                 {"post_processor.type", "BertProcessing"});
  expect_refused("{}", {"model"});
  expect_refused("[]", {"{"});
}

TEST(Tokenizer, NormalizersAndDecodersOtherThanNfcAndBytesAreRefused) {
  std::string text = tokenizer_text();
  const std::string none = R"("normalizer":null)";
  expect_refused(std::string(text).replace(text.find(none), none.size(),
                                           R"("normalizer":{"type":"Lowercase"})"),
                 {"normalizer.type", "Lowercase"});
  const std::string bytes = R"("decoder":{"type":"ByteLevel"})";
  expect_refused(std::string(text).replace(text.find(bytes), bytes.size(),
                                           R"("decoder":{"type":"WordPiece"})"),
                 {"decoder.type", "WordPiece"});
}

TEST(Tokenizer, TemplatesPutIdsAroundTheText) {
  const Tokenizer tokenizer =
      Tokenizer::of_text(tokenizer_text("", R"(,"post_processor":{"type":"Sequence","processors":[
        {"type":"ByteLevel","trim_offsets":false},
        {"type":"TemplateProcessing","pair":[],"single":[{"SpecialToken":{"id":"<s>","type_id":0}},
          {"Sequence":{"id":"A","type_id":0}}],"special_tokens":{"<s>":{"id":"<s>","ids":[4],"tokens":["abc"]}}}]})"),
                         "f");
  EXPECT_EQ(tokenizer.encode("ab"), (Ids{4, 3}));
  EXPECT_EQ(tokenizer.encode("ab", false), Ids{3});
  const std::string one =
      R"({"type":"TemplateProcessing","single":[{"Sequence":{"id":"A"}}],"special_tokens":{}})";
  expect_refused(tokenizer_text("", R"(,"post_processor":{"type":"Sequence","processors":[)" + one +
                                        "," + one + "]}"),
                 {"post_processor.processors[1].type", "TemplateProcessing", "twice"});
}

TEST(TextStream, GivesWholeCharacters) {
  const Tokenizer tokenizer = Tokenizer::open(COSHARD_TOKENIZER_FILES);
  const Ids ids = tokenizer.encode("é😀", false);
  TextStream stream(tokenizer, true);
  std::string text;
  std::vector<std::string> pieces;
  for (const std::int64_t id : ids) pieces.push_back(stream.next(id));
  EXPECT_EQ(pieces, (std::vector<std::string>{"", "é", "", "", "", "😀"}));
  EXPECT_EQ(stream.rest(), "");
  stream.next(ids[0]);
  EXPECT_EQ(stream.rest(), "\xef\xbf\xbd");
  EXPECT_EQ(stream.next(320), "");  // special
}

}  // namespace
}  // namespace coshard::llama
