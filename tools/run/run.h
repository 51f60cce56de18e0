#pragma once
// `coshard run`: runs a program as the ranks of a job, under the installed MPI.
#include "tools/run/options.h"

namespace coshard::job {

// Blocks until no process of the job is left. Returns the exit code of the first rank that failed,
// which the last line on stderr names; 0 if none did. Forwards the ranks' stdout and stderr.
int run_job(const RunOptions& options);

}  // namespace coshard::job
