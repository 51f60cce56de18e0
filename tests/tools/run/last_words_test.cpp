#include "tools/run/last_words.h"

#include <gtest/gtest.h>

namespace coshard::job {
namespace {

TEST(LastWords, OfARankAreThoseOfTheLibrary) {
  EXPECT_TRUE(is_of_a_rank("error: rank 12: no memory"));
  EXPECT_TRUE(is_of_a_rank("error: rank 1, layers.0: no memory at a.cpp:3"));
  EXPECT_FALSE(is_of_a_rank("error: no cache, computing it"));
  EXPECT_FALSE(is_of_a_rank("error: rank of the matrix is 3"));
  EXPECT_FALSE(is_of_a_rank("rank 1: no memory"));
  EXPECT_FALSE(is_of_a_rank("error: rank 1, process 1 (pid 4 on vm) has died: it is closed"));
  EXPECT_FALSE(is_of_a_rank(""));
}

Blame blame_in(const char* words) {
  const std::optional<Blame> blame = blame_of(words);
  EXPECT_TRUE(blame.has_value()) << words;
  return blame.value_or(Blame{false, -1, "", ""});
}

TEST(LastWords, ThatBlameARankSayWhichAndWhy) {
  for (const char* words :
       {"error: rank 2 ended with: no memory", "rank 2 ended with: no memory",
        "train: rank 2 ended with: no memory", "  what():  rank 2 ended with: no memory",
        "error: rank 0, layers.1: rank 2 ended with: no memory",
        "train: all_reduce #4 on tp[0] on rank 1 failed: rank 2 ended with: no memory",
        "error: all_reduce #4 on tp[0] on rank 1 failed: rank 2 ended with: no memory"}) {
    const Blame blame = blame_in(words);
    EXPECT_FALSE(blame.process);
    EXPECT_EQ(blame.number, 2) << words;
    EXPECT_EQ(blame.text, "rank 2 ended with: no memory");
    EXPECT_EQ(blame.reason, "no memory");
  }
}

TEST(LastWords, ThatBlameAProcessSayWhich) {
  for (const char* words :
       {"error: process 1 (pid 42 on node-3.a) has died: its connection was closed",
        "error: rank 4, process 1 (pid 42 on vm) has died: its connection closed",
        "error: rank 2, layers.1: rank 4, process 1 (pid 42 on vm) has died: it closed",
        "ranks 2 to 3, process 1 (pid 42 on vm) has died: its connection closed",
        "train: ranks 2 to 3, process 1 (pid 42 on vm) has died: its connection closed",
        "error: process 1 (pid 42 on node) has ended with exit code 3 after 1 run, during run 2"}) {
    const Blame blame = blame_in(words);
    EXPECT_TRUE(blame.process);
    EXPECT_EQ(blame.number, 1) << words;
    EXPECT_EQ(blame.reason, "");
  }
}

TEST(LastWords, BlameTheRankThatTheyNameFirst) {
  const Blame blame =
      blame_in("rank 1 ended with: rank 0 ended with: it failed: rank 3 ended with: x");
  EXPECT_EQ(blame.number, 1);
  EXPECT_EQ(blame.reason, "rank 0 ended with: it failed: rank 3 ended with: x");
}

TEST(LastWords, OfAProgramThatAreAlikeAreItsOwn) {
  const std::string after_a_long_word = std::string(65, 'x') + ": rank 1 ended with: NaN";
  for (const std::string_view words : std::initializer_list<std::string_view>{
           "error: preprocess has ended with exit code 1", "error: loader process 3 has died: EOF",
           "error: process 3 has died: EOF", "error: solver on rank 1 ended with: NaN",
           "error: train: rank 1 ended with: NaN", after_a_long_word,
           "error: rank 1: process 0 (pid 1 on vm) has died: EOF",
           "train: process 0 (pid 1 on vm) has died: EOF", "error: rank 2 does not answer", ""})
    EXPECT_FALSE(blame_of(words)) << words;
}

}  // namespace
}  // namespace coshard::job
