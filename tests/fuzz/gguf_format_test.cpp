#include "tests/fuzz/gguf_format.h"

#include "tests/fuzz/replay.h"

namespace coshard::testing {
namespace {

constexpr FuzzedFormat kGgufFormat{COSHARD_CORPUS "/gguf", read_gguf};

TEST(Fuzz, S11GgufCorpusIsReadOrRefused) { expect_that_the_corpus_is_read_or_refused(kGgufFormat); }

TEST(Fuzz, S11ChangedGgufsAreReadOrRefused) {
  expect_that_changed_inputs_are_read_or_refused(kGgufFormat);
}

}  // namespace
}  // namespace coshard::testing
