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

TEST(LastWords, OfAnotherAreThoseOfTheLibrary) {
  for (const char* words :
       {"error: rank 2 ended with: no memory", "rank 2 ended with: no memory",
        "error: process 1 (pid 42 on node-3.a) has died: its connection was closed",
        "error: rank 1, process 1 (pid 42 on vm) has died: its connection closed",
        "error: rank 2, layers.1: rank 1, process 1 (pid 42 on vm) has died: it closed",
        "ranks 2 to 3, process 1 (pid 42 on vm) has died: its connection closed",
        "error: process 1 (pid 42 on node) has ended with exit code 3 after 1 run, during run 2",
        "error: all_reduce #4 on tp[0] on rank 1 failed: rank 2 ended with: no memory"})
    EXPECT_TRUE(is_of_another(words)) << words;
}

TEST(LastWords, OfAProgramThatAreAlikeAreItsOwn) {
  for (const char* words :
       {"error: preprocess has ended with exit code 1", "error: loader process 3 has died: EOF",
        "error: process 3 has died: EOF", "error: solver on rank 1 ended with: NaN",
        "error: rank 2 does not answer", ""})
    EXPECT_FALSE(is_of_another(words)) << words;
}

}  // namespace
}  // namespace coshard::job
