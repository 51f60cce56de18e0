#include "tests/fuzz/tokenizer_format.h"

#include "tests/fuzz/replay.h"

namespace coshard::testing {
namespace {

constexpr FuzzedFormat kTokenizerFormat{COSHARD_CORPUS "/tokenizer", read_tokenizer};

TEST(Fuzz, S11TokenizerCorpusIsReadOrRefused) {
  expect_that_the_corpus_is_read_or_refused(kTokenizerFormat);
}

TEST(Fuzz, S11ChangedTokenizersAreReadOrRefused) {
  expect_that_changed_inputs_are_read_or_refused(kTokenizerFormat);
}

}  // namespace
}  // namespace coshard::testing
