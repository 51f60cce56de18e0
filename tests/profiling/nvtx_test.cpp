// What a tool sees of a program, through a library that records it (nvtx_injection.cpp).
#include "profiling/nvtx.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <coshard/runtime/launch/world.h>
#include "profiling/child_process.h"
#include "tests/support/json.h"
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using Words = std::vector<std::string>;

struct Record {
  std::map<std::string, Words> started;  // by range: category, message, payload
  std::map<std::string, int> ended;      // by range: how often
  std::multiset<std::string> named;      // "thread\trank 0", …
  Words schema;
  std::string printed;

  std::vector<Words> of(const std::string& category) const {
    std::vector<Words> found;
    for (const auto& [id, words] : started)
      if (words[0] == category) found.push_back(words);
    return found;
  }
  int count(const std::string& category, const std::string& message) const {
    int n = 0;
    for (const Words& words : of(category)) n += words[1] == message;
    return n;
  }
};

Words split(const std::string& line) {
  Words words;
  std::istringstream in(line);
  for (std::string word; std::getline(in, word, '\t');) words.push_back(word);
  return words;
}

// Runs the program with the recording tool attached.
Record recorded(const std::vector<std::string>& program) {
  const std::string log = coshard::testing::temporary_path("nvtx.log");
  std::vector<std::string> command = {"env", "NVTX_INJECTION64_PATH=" NVTX_INJECTION,
                                      "COSHARD_NVTX_LOG=" + log};
  command.insert(command.end(), program.begin(), program.end());
  const auto printed = output_of(command);
  EXPECT_TRUE(printed.has_value()) << program[0];
  Record found;
  found.printed = printed.value_or("");
  std::ifstream in(log);
  for (std::string line; std::getline(in, line);) {
    Words words = split(line);
    if (words[0] == "start") {
      EXPECT_TRUE(found.started.emplace(words[1], Words(words.begin() + 2, words.end())).second);
    } else if (words[0] == "end") {
      ++found.ended[words[1]];
    } else if (words[0] == "schema") {
      found.schema = Words(words.begin() + 1, words.end());
    } else {
      found.named.insert(line);
    }
  }
  std::remove(log.c_str());
  return found;
}

void expect_balanced(const Record& record) {
  EXPECT_EQ(record.started.size(), record.ended.size());
  for (const auto& [id, words] : record.started) {
    const auto ended = record.ended.find(id);
    ASSERT_NE(ended, record.ended.end()) << words[0] << " " << words[1] << " never ends";
    EXPECT_EQ(ended->second, 1) << words[0] << " " << words[1];
  }
}

TEST(Nvtx, ARedistributeHasOneStartAndOneEnd) {
  const Record record = recorded({NVTX_PROGRAM, "good"});
  expect_balanced(record);
  // Two whole sums, a gather in shards and one that nobody awaits, on two ranks.
  EXPECT_EQ(record.count("redistribute", "all_gather S(0)->R"), 6);
  EXPECT_EQ(record.count("redistribute", "all_to_all S(0)->S(1)"), 2);
  EXPECT_EQ(record.of("redistribute").size(), std::stoul(record.printed));
}

TEST(Nvtx, ARedistributeSaysSequenceBytesDimensionAndLayouts) {
  const Record record = recorded({NVTX_PROGRAM, "good"});
  const Words fields = {"coshard collective", "sequence", "bytes", "mesh dimension", "from", "to"};
  EXPECT_EQ(record.schema, fields);
  std::multiset<std::string> sequences;
  for (const Words& words : record.of("redistribute")) {
    ASSERT_EQ(words.size(), 7U) << words[1];
    if (words[1] != "all_gather S(0)->R") continue;
    sequences.insert(words[2]);
    EXPECT_EQ(words[3], "96");  // 6 x 4 f32
    EXPECT_EQ(words[4], "tp");
    EXPECT_EQ(words[5], "S(0)");
    EXPECT_EQ(words[6], "R");
  }
  EXPECT_EQ(sequences.size(), 6U);
  for (const std::string& sequence : sequences) EXPECT_EQ(sequences.count(sequence), 2U);
}

TEST(Nvtx, WaitsKernelsAndModulesAreRangesAndThreadsHaveNames) {
  const Record record = recorded({NVTX_PROGRAM, "good"});
  EXPECT_GE(record.count("wait", "await all_gather S(0)->R"), 1);
  EXPECT_GE(record.count("compute", "linear"), 6);
  EXPECT_EQ(record.count("module", "w1"), 2 * 2);  // forward and backward on two ranks
  EXPECT_EQ(record.count("module", "backward"), 2);
  EXPECT_EQ(record.count("module", "model"), 2 * 2);  // the outermost, which has no name
  EXPECT_EQ(record.named.count("thread\trank 0"), 1U);
  EXPECT_EQ(record.named.count("thread\trank 1"), 1U);
}

TEST(Nvtx, EveryRangeEndsWhenARankFails) {
  const Record record = recorded({NVTX_PROGRAM, "failing"});
  expect_balanced(record);
  // The rank that fails leaves one in flight.
  EXPECT_EQ(record.of("redistribute").size(), std::stoul(record.printed));
  EXPECT_GE(record.count("redistribute", "all_gather S(0)->R"), 3);
  EXPECT_GE(record.of("module").size(), 1U);
}

TEST(Nvtx, WithoutAToolNoWorldIsWatched) {
  EXPECT_EQ(make_nvtx_trace(0), nullptr);
  coshard::testing::on_ranks(1, [](World& world) -> Task<void> {
    EXPECT_FALSE(world.observed());
    co_return;
  });
}

#ifdef NVTX_STREAMS_PROGRAM
TEST(Nvtx, StreamsOfADeviceHaveNames) {
  const Record record = recorded({NVTX_STREAMS_PROGRAM});
  EXPECT_EQ(record.named.count("stream\tcuda:0 compute"), 1U);
  EXPECT_EQ(record.named.count("stream\tcuda:0 communication"), 1U);
}
#endif

}  // namespace
}  // namespace coshard
