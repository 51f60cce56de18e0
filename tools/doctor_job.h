#pragma once
// `coshard doctor` under mpirun or srun: the job's processes and hosts, and the measured links.
#include <ostream>

#include "tools/doctor.h"

namespace coshard::tools {

// Called by all processes, with one rank in each; process 0 writes the report, including doctor()
// for its machine. Returns its exit code, or 0 in other processes. Throws as run_ranks.
int doctor_of_job(const DoctorOptions& options, std::ostream& out);

}  // namespace coshard::tools
