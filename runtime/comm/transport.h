#pragma once
// What the environment says of the transport that MPI takes. Any thread, while none sets variables.
#include <string>
#include <vector>

namespace coshard {

// "UCX_TLS=tcp,self": what tells MPI and the libraries beneath it which transport to take, and over
// what; sorted.
std::vector<std::string> transport_settings();
// Whether these may have processes of one host talk by TCP, which none does by itself.
bool may_be_tcp(const std::vector<std::string>& settings);

}  // namespace coshard
