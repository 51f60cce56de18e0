#pragma once
// `coshard doctor`: says what this build and this machine have, and what is missing, each problem
// in one line with a hint.
#include <ostream>
#include <string>

namespace coshard::tools {

struct DoctorOptions {
  std::string device;        // asked for: "cpu", "cuda"; empty: nothing, all are told of
  std::string communicator;  // "local", "nccl"; likewise
  std::string mpi_program;   // of the bench; empty: none
};

// The exit code: 0 when everything that was asked for works, else 1. A device that was asked for is
// tried: memory there and back. Error{BadInput}: an unknown name.
int doctor(const DoctorOptions& options, std::ostream& out);

}  // namespace coshard::tools
