#include "runtime/launch/launcher.h"

#include <array>
#include <charconv>
#include <cstdlib>
#include <limits>

#include <coshard/runtime/error.h>
#include "runtime/environment.h"

namespace coshard {
namespace {

// The variables of one launcher.
struct Names {
  const char* launcher;
  const char* mpi;
  const char *size, *rank, *local_size, *local_rank;
  std::vector<const char*> also;  // further variables it always sets
};
const Names kOpenMpi{"mpirun",
                     "openmpi",
                     "OMPI_COMM_WORLD_SIZE",
                     "OMPI_COMM_WORLD_RANK",
                     "OMPI_COMM_WORLD_LOCAL_SIZE",
                     "OMPI_COMM_WORLD_LOCAL_RANK",
                     {}};
// The local variables are hydra's (mpirun) only.
const Names kPmi{"mpirun",          "mpich",           "PMI_SIZE", "PMI_RANK",
                 "MPI_LOCALNRANKS", "MPI_LOCALRANKID", {}};
const Names kSlurm{"srun",          "", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", nullptr,
                   "SLURM_LOCALID", {}};
const Names kTorchrun{"torchrun",
                      "",
                      "WORLD_SIZE",
                      "RANK",
                      "LOCAL_WORLD_SIZE",
                      "LOCAL_RANK",
                      {"LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}};

std::optional<int> number(const Environment& environment, const char* name, int least, int most,
                          const std::string& what) {
  const auto text = name == nullptr ? std::nullopt : environment(name);
  if (!text) return std::nullopt;
  int value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  CS_REQUIRE(
      error == std::errc{} && end == text->data() + text->size() && value >= least && value <= most,
      name, "=", *text, " is not ", what);
  return value;
}

// What one launcher's variables say, where set.
struct Claim {
  const Names* names;
  std::optional<int> size, rank;

  std::string text() const {
    std::string all;
    const auto add = [&all](const char* name, const std::optional<int>& value) {
      if (value) all += str_cat(all.empty() ? "" : " and ", name, "=", *value);
    };
    add(names->size, size);
    add(names->rank, rank);
    return all;
  }
  bool differs(const Claim& other) const {
    return (size && other.size && *size != *other.size) ||
           (rank && other.rank && *rank != *other.rank);
  }
};

std::optional<Claim> claim(const Names& names, const Environment& environment) {
  constexpr int kMost = std::numeric_limits<int>::max();
  Claim found{&names, number(environment, names.size, 1, kMost, "a number of processes"), {}};
  if (&names == &kSlurm && !found.size) return std::nullopt;  // a batch job's script
  const std::string whole =
      found.size ? str_cat("a rank of ", names.size, "=", *found.size) : "a rank";
  found.rank = number(environment, names.rank, 0, found.size.value_or(kMost) - 1, whole);
  if (!found.size && !found.rank) return std::nullopt;
  return found;
}

// A job of one process needs only its size.
void require_complete(const Claim& claim, const Environment& environment) {
  if (claim.size && *claim.size == 1) return;
  std::vector<const char*> all{claim.names->size, claim.names->rank};
  all.insert(all.end(), claim.names->also.begin(), claim.names->also.end());
  std::string missing;
  for (const char* name : all)
    if (!environment(name)) missing += str_cat(missing.empty() ? "" : ", ", name);
  CS_REQUIRE(missing.empty(), claim.text(), " without ", missing, ": set all variables that ",
             claim.names->launcher, " sets, or none of them to run as one process");
}

void require_agreement(const Claim& one, const Claim& other) {
  CS_REQUIRE(
      !one.differs(other), one.text(), " contradict ", other.text(),
      ": start the program with one launcher, in an environment without the other's variables");
}

// In an allocation, mpirun starts its daemons as such a step.
bool one_task_per_node(const Claim& step, const Environment& environment) {
  const auto nodes = environment("SLURM_STEP_NUM_NODES");
  return *step.size == 1 || (nodes && *nodes == std::to_string(*step.size));
}

std::vector<Claim> claims_of(const Environment& environment) {
  std::vector<Claim> claims;
  const auto add = [&](const Names& names) {
    if (auto found = claim(names, environment)) claims.push_back(std::move(*found));
  };
  for (const Names* names : {&kOpenMpi, &kPmi, &kTorchrun}) add(*names);
  const auto step = claim(kSlurm, environment);
  if (!step) return claims;
  bool daemons = false;
  for (const Claim& other : claims)
    daemons = daemons || (other.differs(*step) && one_task_per_node(*step, environment));
  if (daemons) return claims;
  // srun supports MPI, torchrun does not.
  const bool last = claims.empty() || claims.back().names != &kTorchrun;
  claims.insert(last ? claims.end() : claims.end() - 1, *step);
  return claims;
}

}  // namespace

std::optional<Launched> launched(const Environment& environment) {
  const std::vector<Claim> claims = claims_of(environment);
  if (claims.empty()) return std::nullopt;
  const Claim& best = claims.front();
  require_complete(best, environment);
  for (const Claim& other : claims) require_agreement(best, other);
  if (*best.size == 1) return std::nullopt;
  Launched job{best.names->launcher,
               best.names->mpi,
               best.text(),
               *best.size,
               *best.rank,
               {},
               {},
               environment("MASTER_ADDR").value_or(""),
               environment("MASTER_PORT").value_or("")};
  const int most = job.processes;
  job.local_processes =
      number(environment, best.names->local_size, 1, most, "a number of local processes");
  job.local_process = number(environment, best.names->local_rank, 0, most - 1, "a local rank");
  if (best.names == &kSlurm && environment("PMIX_RANK")) job.mpi = "openmpi";
  if (best.names == &kPmi && environment("SLURM_MPI_TYPE") == "pmi2") job.launcher = "srun";
  return job;
}

Environment own_environment() {
  return [](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

std::vector<std::string> variables_of_mpi_launchers() {
  std::vector<std::string> all;
  for (const Names* names : {&kOpenMpi, &kPmi})
    all.insert(all.end(), {names->size, names->rank, names->local_size, names->local_rank});
  if (std::getenv(kOpenMpi.rank) == nullptr) return all;
  // Open MPI's mpirun refuses to start if it finds these variables of its own.
  constexpr std::array<std::string_view, 7> kItsOwn = {
      "PMIX_",        "OMPI_COMM_WORLD_", "OMPI_UNIVERSE_SIZE",   "OMPI_MCA_orte_",
      "OMPI_MCA_ess", "OMPI_MCA_pmix",    "OMPI_MCA_initial_wdir"};
  for (const std::string& setting : settings_of(kItsOwn))
    all.push_back(setting.substr(0, setting.find('=')));
  return all;
}

std::optional<Launched> launched() { return launched(own_environment()); }

std::string launchers_of(const std::string& mpi) {
  return mpi == "openmpi" ? "Open MPI's mpirun or srun --mpi=pmix"
                          : "MPICH's mpirun or srun --mpi=pmi2";
}

void fail_without_mpi(const Launched& job) {
  if (job.launcher == "srun")
    fail(ErrorKind::BadInput,
         str_cat(
             job.said,
             ", but srun was started without MPI support: start the program with srun --mpi=pmix "
             "(Open MPI) or srun --mpi=pmi2 (MPICH)"));
  fail(ErrorKind::BadInput,
       str_cat(job.said, ", but several processes need MPI: start the program with mpirun -n ",
               job.processes, " instead of ", job.launcher));
}

}  // namespace coshard
