#pragma once
// `coshard doctor` under mpirun or srun: the processes of the job, their hosts, and what the links
// between them measure.
#include <ostream>

#include "tools/doctor.h"

namespace coshard::tools {

// Called by all processes; process 0 writes, once, also what doctor() says of its machine. One rank
// in each process. The exit code of doctor(); in the other processes 0. Throws what run_ranks does.
int doctor_of_job(const DoctorOptions& options, std::ostream& out);

}  // namespace coshard::tools
