#include "tests/fuzz/config_format.h"

#include "tests/fuzz/replay.h"

namespace coshard::testing {
namespace {

constexpr FuzzedFormat kConfig{COSHARD_CORPUS "/config", read_config_text};

TEST(Fuzz, S11ConfigsOfTheCorpusAreReadOrRefused) {
  expect_that_the_corpus_is_read_or_refused(kConfig);
}

TEST(Fuzz, S11ChangedConfigsAreReadOrRefused) {
  expect_that_changed_inputs_are_read_or_refused(kConfig);
}

}  // namespace
}  // namespace coshard::testing
