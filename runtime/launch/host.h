#pragma once
// Identity of this process's host, to compare across processes. Any thread.
#include <string>
#include <vector>

namespace coshard {

// Equal for two processes that can reach each other over loopback: same boot and network namespace.
// Host names may be equal on different hosts.
std::string host_id();
// Equal for two processes in the same pid namespace.
std::string pid_space_id();
std::string host_name();
// Addresses of the interfaces that are up, except loopback and IPv6 link-local ones; IPv4 first.
std::vector<std::string> addresses_of_this_host();

}  // namespace coshard
