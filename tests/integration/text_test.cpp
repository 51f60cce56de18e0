// The text that examples/train draws from.
#include <gtest/gtest.h>

#include <coshard/runtime/error.h>
#include "tests/integration/training.h"

namespace coshard::testing {
namespace {

using train::Batch;
using train::Text;

TEST(Text, EveryTwentiethBlockIsHeldOut) {
  const TextFile file(45 * 4096);
  const Text text(file.path(), 16);
  EXPECT_EQ(text.held_out_blocks(), 2U);
  EXPECT_EQ(text.held_out_begin(0), 19U * 4096);
  EXPECT_EQ(text.held_out_begin(1), 39U * 4096);
}

TEST(Text, NoBatchTouchesAHeldOutBlock) {
  // 19 blocks of 'a', one of 'b', over and over.
  const std::string path = temporary_path("blocks.txt");
  std::ofstream out(path);
  for (int block = 0; block < 60; ++block) out << std::string(4096, block % 20 == 19 ? 'b' : 'a');
  out.close();
  const Text text(path, 1000);
  for (int step = 0; step < 300; ++step) {
    const Batch batch = text.draw(1, step, 0, 2);
    ASSERT_EQ(batch.tokens.size(), 2000U);
    for (const double byte : batch.tokens) ASSERT_EQ(byte, 'a');
    for (const double byte : batch.targets) ASSERT_EQ(byte, 'a');
  }
  std::remove(path.c_str());
}

TEST(Text, ATargetIsTheNextByteAndAStepHasItsOwnBatch) {
  const TextFile file;
  const Text text(file.path(), 20);
  const Batch a = text.draw(5, 7, 0, 3);
  EXPECT_EQ(a.tokens, text.draw(5, 7, 0, 3).tokens);
  for (std::size_t i = 0; i + 1 < 20; ++i) EXPECT_EQ(a.targets[i], a.tokens[i + 1]);
  EXPECT_EQ(text.draw(5, 7, 2, 1).tokens,
            std::vector<double>(a.tokens.begin() + 40, a.tokens.end()));
  EXPECT_NE(a.tokens, text.draw(5, 8, 0, 3).tokens);
  EXPECT_NE(a.tokens, text.draw(6, 7, 0, 3).tokens);
}

TEST(Text, RefusesATextThatHoldsNoSequence) {
  const TextFile file(20);
  EXPECT_THROW(Text(file.path(), 20), Error);
  EXPECT_NO_THROW(Text(file.path(), 19));
}

}  // namespace
}  // namespace coshard::testing
