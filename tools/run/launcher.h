#pragma once
// The mpirun that starts one guard per rank.
#include <string>
#include <utility>
#include <vector>

#include "tools/run/hosts.h"

namespace coshard::job {

struct Launcher {
  std::string mpi;   // "openmpi", "mpich"
  std::string path;  // "/usr/bin/mpirun.openmpi"
};

std::vector<std::string> known_mpis();
// The launcher of `mpi`; of the first of `shims` (the MPIs that this build can use) that has one
// when `mpi` is empty, else of any. Error{Unsupported}: there is none; names the package.
Launcher find_launcher(const std::string& mpi, const std::vector<std::string>& shims);

using Environment = std::vector<std::pair<std::string, std::string>>;

struct Job {
  int ranks = 1;
  std::vector<Host> hosts;  // empty: this machine
  int cores = 1;            // of a host
  bool root = false;
  std::vector<std::string> exported;  // variables that every rank needs
  std::vector<std::string> guard;     // what each rank is started as
};
std::vector<std::string> command_of(const Launcher& launcher, const Job& job);
// What the launcher and the ranks need; what the user has set already stays.
Environment environment_of(const Launcher& launcher, const Job& job);

}  // namespace coshard::job
