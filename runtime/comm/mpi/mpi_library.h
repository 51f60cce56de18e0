#pragma once
// Opens the shim for an MPI: "openmpi" or "mpich".
#include <string>
#include <vector>

#include "runtime/comm/mpi/mpi_api.h"

namespace coshard {

// The MPI loaded in this program, linked or opened with RTLD_GLOBAL; "": none.
std::string loaded_mpi();
// Whether the program has initialised the loaded MPI.
bool is_initialised();
// Candidate paths of the shim for `mpi`; the first that exists is used.
std::vector<std::string> shim_places(const std::string& mpi);
// Whether there is a shim for `mpi`.
bool has_shim(const std::string& mpi);
// The function table of its shim, the same for the life of the process. Error{Unsupported}: this
// build has no shim for it, or that MPI is not installed. The message gives `why` it was needed,
// then the remedy.
const MpiApi& mpi_api(const std::string& mpi, const std::string& why);

}  // namespace coshard
