#pragma once
// Starts another program with pipes as its stdout and stderr; it inherits the environment. The
// caller waits for it.
#include <sys/types.h>

#include <string>
#include <vector>

#include "tools/run/launcher.h"
#include "tools/run/orphan_reaper.h"

namespace coshard::job {

enum class Apart {
  Group,    // in its own process group; killed when the calling thread's process dies
  Session,  // in its own session: signals from the terminal do not reach it
};

enum class Stdin { Empty, Pipe };

struct Child {
  pid_t pid = 0;
  int out = -1, err = -1;  // owned by the caller
  int in = -1;             // as well; only with Stdin::Pipe
  int error = 0;           // errno if it could not be started; then the rest is unset
};

// Removes `removed` from its environment, then adds `added`. `reaper` is set to its group before it
// can start others. Call from a single-threaded process.
Child start(const std::vector<std::string>& command, Apart apart, const Environment& added,
            const std::vector<std::string>& removed = {}, OrphanReaper* reaper = nullptr,
            Stdin in = Stdin::Empty);

}  // namespace coshard::job
