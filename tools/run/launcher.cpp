#include "tools/run/launcher.h"

#define BOOST_PROCESS_USE_STD_FS  // otherwise it needs Boost.Filesystem
#include <algorithm>
#include <array>
#include <boost/system/error_code.hpp>  // search_path.hpp needs it
#include <cstdlib>

#include <boost/process/search_path.hpp>

#include <coshard/runtime/error.h>
#include "profiling/child_process.h"
#include "runtime/near_miss.h"

namespace coshard::job {
namespace {

struct Kind {
  const char* mpi;
  const char* package;  // Debian's
  std::vector<const char*> names;
  const char* version;  // in the output of `mpirun --version`
};

const std::array<Kind, 2>& kinds() {
  static const std::array<Kind, 2> all = {
      Kind{"openmpi", "openmpi-bin", {"mpirun.openmpi", "mpirun", "mpiexec"}, "open-mpi.org"},
      Kind{"mpich", "mpich", {"mpirun.mpich", "mpiexec.hydra", "mpirun", "mpiexec"}, "HYDRA"}};
  return all;
}

std::string path_of(const Kind& kind) {
  for (const char* name : kind.names) {
    const std::string path = boost::process::search_path(name).string();
    if (!path.empty() &&
        output_of({path, "--version"}).value_or("").find(kind.version) != std::string::npos)
      return path;
  }
  return "";
}

std::string listed(const std::vector<Host>& hosts) {
  std::string text;
  for (const Host& host : hosts)
    text += (text.empty() ? "" : ",") + host.name + ':' + std::to_string(host.ranks);
  return text;
}

bool is_crowded(const Job& job) {
  int most = job.hosts.empty() ? job.ranks : 0;
  for (const Host& host : job.hosts) most = std::max(most, host.ranks);
  return most > job.cores;
}

// The variables that the user has not set.
Environment unset_ones_of(Environment all) {
  std::erase_if(all, [](const auto& each) { return std::getenv(each.first.c_str()) != nullptr; });
  return all;
}

}  // namespace

std::vector<std::string> known_mpis() {
  std::vector<std::string> names;
  for (const Kind& kind : kinds()) names.emplace_back(kind.mpi);
  return names;
}

Launcher find_launcher(const std::string& mpi, const std::vector<std::string>& shims) {
  std::vector<const Kind*> wanted;
  std::vector<std::string> packages;
  for (const Kind& kind : kinds())
    if (mpi.empty() || mpi == kind.mpi) wanted.push_back(&kind);
  std::stable_partition(wanted.begin(), wanted.end(), [&](const Kind* kind) {
    return std::ranges::find(shims, kind->mpi) != shims.end();
  });
  for (const Kind* kind : wanted) {
    if (const std::string path = path_of(*kind); !path.empty()) return {kind->mpi, path};
    packages.emplace_back(kind->package);
  }
  std::ranges::sort(packages);
  fail(ErrorKind::Unsupported,
       str_cat("there is no mpirun of ", mpi.empty() ? joined(known_mpis()) : mpi,
               " in PATH; on Debian it is in the package ", joined(packages)));
}

std::vector<std::string> command_of(const Launcher& launcher, const Job& job) {
  std::vector<std::string> words = {launcher.path, "-n", std::to_string(job.ranks)};
  const bool open_mpi = launcher.mpi == "openmpi";
  if (!job.hosts.empty()) {
    words.emplace_back(open_mpi ? "--host" : "-hosts");
    words.push_back(listed(job.hosts));
  }
  if (open_mpi)  // hydra exports all
    for (const std::string& name : job.exported) words.insert(words.end(), {"-x", name});
  words.insert(words.end(), job.guard.begin(), job.guard.end());
  return words;
}

Environment environment_of(const Launcher& launcher, const Job& job) {
  if (launcher.mpi != "openmpi") {
    // UCX ends a process that reads the memory of one that has died, before it can report that. If
    // all are certainly on one host, shared memory serves as well.
    const auto is_set = [](const char* name) { return std::getenv(name) != nullptr; };
    const bool here = job.hosts.empty() && !is_set("SLURM_JOB_ID") && !is_set("HYDRA_HOST_FILE");
    Environment all = {{"UCX_DEBUG_SIGNO", "0"}};  // by default UCX handles SIGHUP
    if (here) all.emplace_back("UCX_TLS", "posix,sysv,self");
    return unset_ones_of(std::move(all));
  }
  // Ranks in order, host by host; compute threads are not bound to one core; no waiting for guards
  // that exit, since no rank is left then.
  Environment all = {{"OMPI_MCA_rmaps_base_mapping_policy", "slot"},
                     {"OMPI_MCA_hwloc_base_binding_policy", "none"},
                     {"OMPI_MCA_odls_base_sigkill_timeout", "0"}};
  if (!job.hosts.empty()) all.emplace_back("OMPI_MCA_orte_keep_fqdn_hostnames", "1");  // a.x, a.y
  if (is_crowded(job))
    all.insert(all.end(),
               {{"OMPI_MCA_rmaps_base_oversubscribe", "1"}, {"OMPI_MCA_mpi_yield_when_idle", "1"}});
  if (job.root)
    all.insert(all.end(),
               {{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}});
  return unset_ones_of(std::move(all));
}

}  // namespace coshard::job
