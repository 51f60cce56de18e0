#pragma once
// The hosts of a job and their ranks.
#include <string>
#include <vector>

namespace coshard::job {

struct Host {
  std::string name;
  int ranks = 0;
  bool operator==(const Host&) const = default;
};

// "h0,h1:2". Numbers, if given, must add up to `ranks` unless that is 0; hosts without numbers
// share `ranks` in blocks, the first ones get more, or have one each. Error{BadInput} otherwise.
std::vector<Host> parse_hosts(const std::string& text, int ranks);
int ranks_of(const std::vector<Host>& hosts);
// Empty if it is on none of them.
std::string host_of(const std::vector<Host>& hosts, int rank);

}  // namespace coshard::job
