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
// The launcher of `mpi`; if that is empty, of the first of `shims` (the MPIs that this build can
// use) that has one, else of any MPI. Error{Unsupported}: there is none; names the package.
Launcher find_launcher(const std::string& mpi, const std::vector<std::string>& shims);

using Environment = std::vector<std::pair<std::string, std::string>>;

struct Job {
  int ranks = 1;
  std::vector<Host> hosts;  // empty: this machine
  int cores = 1;            // of a host
  bool root = false;
  std::vector<std::string> exported;  // variables that every rank needs
  std::vector<std::string> guard;     // the command line of each rank
};
std::vector<std::string> command_of(const Launcher& launcher, const Job& job);
// What the launcher and the ranks need, without variables that the user has set.
Environment environment_of(const Launcher& launcher, const Job& job);

}  // namespace coshard::job
