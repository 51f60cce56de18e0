#pragma once
// Who has started this process, and as which of how many: what launchers say in the environment.
// Values; any thread.
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace coshard {

struct Launched {
  std::string launcher;  // "mpirun", "srun", "torchrun"; "MPI": the program has initialised it
  std::string mpi;       // whose processes it starts: "openmpi", "mpich"; "": none that is known
  std::string said;      // for errors: "OMPI_COMM_WORLD_SIZE=4 and OMPI_COMM_WORLD_RANK=1"
  int processes = 1, process = 0;
  std::optional<int> local_processes, local_process;  // on this node
  std::string master_addr, master_port;               // of torchrun
};

// The value of a variable; none: it is not set.
using Environment = std::function<std::optional<std::string>(const char* name)>;

// None: this process was started by itself, or is the only one of its job. Of several launchers
// that agree, the one that knows an MPI. Error{BadInput}: launchers that contradict each other,
// with what both say; a variable that is missing, or no number. An allocation of Slurm is no
// launcher, and a step of one task per node may be what an mpirun has started its daemons with.
std::optional<Launched> launched(const Environment& environment);
// In the environment of this process.
std::optional<Launched> launched();
Environment own_environment();
// By which a process of MPI knows its place: what a launcher within another's job must not find.
std::vector<std::string> variables_of_mpi_launchers();

// What to start a program of this MPI with: "Open MPI's mpirun or srun --mpi=pmix".
std::string launchers_of(const std::string& mpi);
// For a job whose launcher serves no MPI that is known. Error{BadInput} says what to do.
[[noreturn]] void fail_without_mpi(const Launched& job);

}  // namespace coshard
