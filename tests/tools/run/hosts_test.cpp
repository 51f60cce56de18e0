#include "tools/run/hosts.h"

#include <gtest/gtest.h>

#include <coshard/runtime/error.h>

namespace coshard::job {
namespace {

using Hosts = std::vector<Host>;

std::string refusal(const std::string& text, int ranks) {
  try {
    parse_hosts(text, ranks);
  } catch (const Error& error) {
    return error.kind() == ErrorKind::BadInput ? error.what() : "another kind";
  }
  return "none";
}

TEST(Hosts, WithNumbersHaveThese) {
  EXPECT_EQ(parse_hosts("a:1,b:3", 0), (Hosts{{"a", 1}, {"b", 3}}));
  EXPECT_EQ(parse_hosts("a:1,b:3", 4), (Hosts{{"a", 1}, {"b", 3}}));
  EXPECT_EQ(ranks_of(parse_hosts("a:1,b:3", 0)), 4);
}

TEST(Hosts, WithoutNumbersShareTheRanks) {
  EXPECT_EQ(parse_hosts("a,b", 0), (Hosts{{"a", 1}, {"b", 1}}));
  EXPECT_EQ(parse_hosts("a,b,c", 5), (Hosts{{"a", 2}, {"b", 2}, {"c", 1}}));
  EXPECT_EQ(parse_hosts("a", 7), (Hosts{{"a", 7}}));
}

TEST(Hosts, AreOfTheRanksInTheirOrder) {
  const Hosts hosts = parse_hosts("a:2,b:1", 0);
  for (const auto& [rank, host] : {std::pair{0, "a"}, {1, "a"}, {2, "b"}, {3, ""}})
    EXPECT_EQ(host_of(hosts, rank), host);
}

TEST(Hosts, ThatDoNotFitAreRefused) {
  EXPECT_EQ(refusal("", 0).find("--hosts '': expected host names"), 0u);
  EXPECT_EQ(refusal("a:2,b:2", 3), "--hosts a:2,b:2 adds up to 4 ranks, but -n is 3");
  EXPECT_EQ(refusal("a,b,c", 2), "--hosts a,b,c names 3 hosts, more than -n 2");
  EXPECT_EQ(refusal("a:2,b", 0),
            "--hosts a:2,b: either all hosts have a number of ranks, or none has");
  EXPECT_EQ(refusal("a:0", 0), "--hosts a 0: must be a number from 1 to 1024");
  EXPECT_EQ(refusal("a:two", 0), "--hosts a two: must be a number from 1 to 1024");
  for (const char* text : {"a,", ",a", ":2", "-x,a", "a b", "[::1]", "n[0-3]"})
    EXPECT_EQ(refusal(text, 0).find(std::string("--hosts ") + text + ": expected host names"), 0u);
}

}  // namespace
}  // namespace coshard::job
