#pragma once
// `coshard run`: one program as the ranks of a job, under the MPI that is there.
#include "tools/run/options.h"

namespace coshard::job {

// Blocks until no process of the job is left. The exit code of the first rank that failed, told on
// stderr as the last line; 0 if none did. stdout and stderr of the ranks come out of this process's.
int run_job(const RunOptions& options);

}  // namespace coshard::job
