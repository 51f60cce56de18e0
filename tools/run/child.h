#pragma once
// Starts another program with its stdout and stderr as pipes. stdin and the environment are this
// process's. Waiting for it is the caller's.
#include <sys/types.h>

#include <string>
#include <vector>

#include "tools/run/last_will.h"
#include "tools/run/launcher.h"

namespace coshard::job {

enum class Apart {
  Group,    // in its own process group; killed when the calling thread's process dies
  Session,  // in its own session: signals of the terminal do not reach it
};

struct Child {
  pid_t pid = 0;
  int out = -1, err = -1;  // owned by the caller
  int error = 0;           // errno, where it could not be started: then there is nothing above
};

// `removed` from its environment, then `added` to it. `will` has its group before it can start others.
// From a process with one thread.
Child start(const std::vector<std::string>& command, Apart apart, const Environment& added,
            const std::vector<std::string>& removed = {}, LastWill* will = nullptr);

}  // namespace coshard::job
