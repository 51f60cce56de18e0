#pragma once
// `coshard doctor`: reports what this build and this machine have, and what is missing, each in one
// line with a hint: a note if this machine does not need it, otherwise a problem.
#include <ostream>
#include <string>
#include <vector>

namespace coshard::tools {

std::vector<std::string> built_mpis();  // "openmpi", "mpich"

struct DoctorOptions {
  std::string device;        // required: "cpu", "cuda"; empty: none, all are reported
  std::string communicator;  // "local", "nccl"; likewise
  std::string mpi_program;   // of the bench; empty: none
  std::vector<std::string> mpis = built_mpis();  // whose modules must be present
};

// Returns the exit code: 0 if everything required works, else 1. Tests a required device by copying
// memory to it and back. Error{BadInput}: an unknown name.
int doctor(const DoctorOptions& options, std::ostream& out);

}  // namespace coshard::tools
