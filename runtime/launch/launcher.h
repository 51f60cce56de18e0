#pragma once
// Which launcher started this process, and its rank and size, from the launcher's environment
// variables. Values; any thread.
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace coshard {

struct Launched {
  std::string launcher;  // "mpirun", "srun", "torchrun"; "MPI": initialised by the program
  std::string mpi;       // the MPI it supports: "openmpi", "mpich"; "": none known
  std::string said;      // for errors: "OMPI_COMM_WORLD_SIZE=4 and OMPI_COMM_WORLD_RANK=1"
  int processes = 1, process = 0;
  std::optional<int> local_processes, local_process;  // on this node
  std::string master_addr, master_port;               // of torchrun
};

// The value of a variable; none: it is not set.
using Environment = std::function<std::optional<std::string>(const char* name)>;

// None: this process was started without a launcher, or is the only one of its job. If several
// launchers agree, the one that supports an MPI. Error{BadInput}: contradictory launchers, quoting
// both; a variable that is missing or not a number. A Slurm allocation does not count as a
// launcher, nor does a step of one task per node that contradicts another launcher: mpirun starts
// its daemons that way.
std::optional<Launched> launched(const Environment& environment);
// From the environment of this process.
std::optional<Launched> launched();
Environment own_environment();
// The variables that tell a process its place in an MPI job; to be unset for a launcher started
// within another's job.
std::vector<std::string> variables_of_mpi_launchers();

// The launchers for a program of this MPI: "Open MPI's mpirun or srun --mpi=pmix".
std::string launchers_of(const std::string& mpi);
// For a job whose launcher supports no known MPI. Error{BadInput} says what to do.
[[noreturn]] void fail_without_mpi(const Launched& job);

}  // namespace coshard
