#include "tools/run/hosts.h"

#include <algorithm>
#include <cctype>
#include <sstream>

#include <coshard/runtime/error.h>
#include <coshard/runtime/launch/command_line.h>
#include "runtime/parse_number.h"

namespace coshard::job {
namespace {

Host parse_host(const std::string& text, const std::string& word) {
  const std::size_t colon = word.find(':');
  Host host{word.substr(0, colon), 0};
  const auto in_a_name = [](unsigned char c) {
    return std::isgraph(c) != 0 && c != '[' && c != ']';
  };
  CS_REQUIRE(
      !host.name.empty() && host.name.front() != '-' && std::ranges::all_of(host.name, in_a_name),
      "--hosts ", shown(text),
      ": expected host names, with or without a number of ranks: h0,h1 or h0:2,h1:2");
  if (colon != std::string::npos)
    host.ranks = parse_number("--hosts " + host.name, word.substr(colon + 1), 1, kMostRanks);
  return host;
}

void share(std::vector<Host>& hosts, const std::string& text, int ranks) {
  const int count = static_cast<int>(hosts.size());
  if (ranks == 0) ranks = count;
  CS_REQUIRE(ranks >= count, "--hosts ", text, " names ", count, " hosts, more than -n ", ranks);
  for (int i = 0; i < count; ++i)
    hosts[static_cast<std::size_t>(i)].ranks = ranks / count + (i < ranks % count ? 1 : 0);
}

}  // namespace

int ranks_of(const std::vector<Host>& hosts) {
  int ranks = 0;
  for (const Host& host : hosts) ranks += host.ranks;
  return ranks;
}

std::string host_of(const std::vector<Host>& hosts, int rank) {
  for (const Host& host : hosts)
    if ((rank -= host.ranks) < 0) return host.name;
  return "";
}

std::vector<Host> parse_hosts(const std::string& text, int ranks) {
  std::vector<Host> hosts;
  std::istringstream in(text + ',');
  for (std::string word; std::getline(in, word, ',');) hosts.push_back(parse_host(text, word));
  const auto counted = std::ranges::count_if(hosts, [](const Host& h) { return h.ranks > 0; });
  if (counted == 0) {
    share(hosts, text, ranks);
    return hosts;
  }
  CS_REQUIRE(counted == static_cast<std::ptrdiff_t>(hosts.size()), "--hosts ", text,
             ": either all hosts have a number of ranks, or none has");
  CS_REQUIRE(ranks == 0 || ranks_of(hosts) == ranks, "--hosts ", text, " adds up to ",
             ranks_of(hosts), " ranks, but -n is ", ranks);
  return hosts;
}

}  // namespace coshard::job
