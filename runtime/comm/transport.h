#pragma once
// MPI transport settings in the environment. Any thread, while no thread sets variables.
#include <string>
#include <vector>

namespace coshard {

// The settings ("UCX_TLS=tcp,self") that select transports and interfaces for MPI and the libraries
// beneath it; sorted.
std::vector<std::string> transport_settings();
// Whether these may make processes on one host use TCP, which no MPI does by default.
bool may_be_tcp(const std::vector<std::string>& settings);

}  // namespace coshard
