// Merges, and what a vocabulary may hold.
#include "examples/llama/bpe.h"

#include "tests/examples/llama/json_text.h"

namespace coshard::llama {
namespace {

using Ids = std::vector<std::int64_t>;

Ids ids_of(const std::string& model, std::string_view text) {
  return Tokenizer::of_text(tokenizer_text(model), "f").encode(text);
}

TEST(Bpe, MergesTheFirstRankFirst) {
  EXPECT_EQ(ids_of("", "abc"), Ids{4});
  EXPECT_EQ(ids_of("", "aabcb"), (Ids{0, 4, 1}));
  EXPECT_EQ(ids_of("", " abc"), (Ids{5, 4}));  // "a b" comes before "Ġ a"
  EXPECT_EQ(ids_of("", " a"), Ids{6});
}

TEST(Bpe, LongWordsAreMergedAsShortOnes) {
  std::string text;
  Ids expected;
  for (int i = 0; i < 50'000; ++i) {
    text += "abca";
    expected.insert(expected.end(), {4, 0});
  }
  EXPECT_EQ(ids_of("", text), expected);
}

TEST(Bpe, BytesWithoutATokenAreLeftOut) {
  EXPECT_EQ(ids_of("", "axb"), Ids{3});
  EXPECT_EQ(ids_of(R"(,"unk_token":"c")", "axyb"), (Ids{0, 2, 2, 1}));
  EXPECT_EQ(ids_of(R"(,"unk_token":"c","fuse_unk":true)", "axyb"), (Ids{0, 2, 1}));
}

TEST(Bpe, WholeWordsComeFirstIfMergesAreIgnored) {
  const std::string vocabulary = R"(,"ignore_merges":true)";
  EXPECT_EQ(ids_of(vocabulary, "abc"), Ids{4});
  EXPECT_EQ(ids_of(vocabulary, "bc"), (Ids{1, 2}));
}

TEST(Bpe, VocabulariesThatContradictThemselvesAreRefused) {
  const auto model = [](const std::string& vocab, const std::string& merges) {
    return R"({"model":{"vocab":)" + vocab + R"(,"merges":)" + merges + "}}";
  };
  expect_refused(model(R"({"a":-1})", "[]"), {"model.vocab", "-1", "'a'"});
  expect_refused(model(R"({"a":5000000000})", "[]"), {"model.vocab", "5000000000"});
  expect_refused(model(R"({"a":1,"b":1})", "[]"), {"id 1", "'b'"});
  expect_refused(model("[]", "[]"), {"model.vocab"});
  expect_refused(model(R"({"a":0})", R"(["a b"])"), {"model.merges[0]", "a b"});
  expect_refused(model(R"({"a":0,"b":1})", R"([["a","b"]])"), {"model.merges[0]"});
  expect_refused(model(R"({"a":0,"b":1,"ab":2})", R"(["a b c"])"), {"model.merges[0]"});
  expect_refused(model(R"({"a":0})", "3"), {"model.merges"});
  expect_refused(model(R"({"a":0})", R"([],"unk_token":"u")"), {"unk_token"});
}

}  // namespace
}  // namespace coshard::llama
