// The corpora of the fuzzers, and what a seeded generator makes of them, through the same readers.
#include "tests/fuzz/formats.h"

#include "tests/fuzz/replay.h"

namespace coshard::testing {
namespace {

constexpr FuzzedFormat kFuzzedFormats[] = {{COSHARD_CORPUS "/header", read_header},
                                           {COSHARD_CORPUS "/index", read_index},
                                           {COSHARD_CORPUS "/manifest", read_manifest}};

TEST(Fuzz, CorporaAreReadOrRefused) {
  for (const FuzzedFormat& format : kFuzzedFormats)
    expect_that_the_corpus_is_read_or_refused(format);
}

TEST(Fuzz, ChangedInputsAreReadOrRefused) {
  for (const FuzzedFormat& format : kFuzzedFormats)
    expect_that_changed_inputs_are_read_or_refused(format);
}

}  // namespace
}  // namespace coshard::testing
