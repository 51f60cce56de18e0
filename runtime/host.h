#pragma once
// Identity of this process's host, to compare across processes, and its cores. Any thread.
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
// What to do about the error (errno) of listening: "; bring the loopback …", or "" for another.
std::string listen_remedy(int error);
// The cores that this process may use, at least 1: those of its affinity mask (taskset, cpusets,
// `srun -c`), but no more than the CPU quota of its control group and those around it, rounded up
// (`docker --cpus`). `root` stands for "/" in a test.
int usable_cores(const std::string& root = "");

}  // namespace coshard
