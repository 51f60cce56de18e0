#pragma once
// The host of this process, as other processes may know it. Any thread.
#include <string>
#include <vector>

namespace coshard {

// Equal for two processes if they can reach each other by loopback: of one boot and one network
// namespace. Host names may be equal on different hosts.
std::string host_id();
// Equal for two processes that know each other, and others, by the same pids.
std::string pid_space_id();
std::string host_name();
// Of the interfaces that are up, loopback and link-local ones apart; IPv4 first.
std::vector<std::string> addresses_of_this_host();

}  // namespace coshard
