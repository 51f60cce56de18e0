#pragma once
// Opens the shim for an MPI: "openmpi" or "mpich".
#include <string>
#include <vector>

#include "runtime/comm/mpi/mpi_api.h"

namespace coshard {

// The MPI that is part of this program, linked or opened for all to see; "": none.
std::string loaded_mpi();
// Whether the program has initialised that one.
bool is_initialised();
// The files of which the first that exists is its shim.
std::vector<std::string> shim_places(const std::string& mpi);
// Whether there is a shim for it.
bool has_shim(const std::string& mpi);
// The same for the whole life of the process. Error{Unsupported}: this build has no shim for it, or
// its MPI is not there. The error gives `why` it was needed, then says what to do.
const MpiApi& mpi_api(const std::string& mpi, const std::string& why);

}  // namespace coshard
