#pragma once
// `coshard doctor`: says what this build and this machine have, and what is missing, each in one line
// with a hint: a note where this machine need not have it, else a problem.
#include <ostream>
#include <string>
#include <vector>

namespace coshard::tools {

std::vector<std::string> built_mpis();  // "openmpi", "mpich"

struct DoctorOptions {
  std::string device;        // asked for: "cpu", "cuda"; empty: nothing, all are told of
  std::string communicator;  // "local", "nccl"; likewise
  std::string mpi_program;   // of the bench; empty: none
  std::vector<std::string> mpis = built_mpis();  // whose modules must be there
};

// The exit code: 0 when everything that was asked for works, else 1. A device that was asked for is
// tried: memory there and back. Error{BadInput}: an unknown name.
int doctor(const DoctorOptions& options, std::ostream& out);

}  // namespace coshard::tools
