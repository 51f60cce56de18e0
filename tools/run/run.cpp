#include "tools/run/run.h"

#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <filesystem>

#include <coshard/runtime/error.h>
#include "runtime/control/proof.h"
#include "runtime/host.h"
#include "tools/build_info.h"
#include "tools/run/guard.h"
#include "tools/run/launcher.h"
#include "tools/run/standard_streams.h"
#include "tools/run/supervisor.h"

namespace coshard::job {
namespace {

namespace asio = boost::asio;

Job job_of(const RunOptions& options) {
  Job job;
  if (options.hosts) job.hosts = parse_hosts(*options.hosts, options.ranks);
  job.ranks = !job.hosts.empty()  ? ranks_of(job.hosts)
              : options.ranks > 0 ? options.ranks
                                  : usable_cores();
  job.cores = usable_cores();
  job.root = ::geteuid() == 0;
  job.exported = {kAddressVariable, kTokenVariable};
  job.guard = {std::filesystem::read_symlink("/proc/self/exe").string(), kGuardWord};
  for (const std::string& word : options.program) job.guard.push_back(kGuardedWord + word);
  return job;
}

std::string text_of(const ControlAddress& address) {
  std::string all;
  for (const std::string& host : address.hosts) all += (all.empty() ? "" : ",") + host;
  return str_cat(all, ':', address.port);
}

}  // namespace

int run_job(const RunOptions& options) {
  open_standard_streams();
  ignore_sigpipe();
  const Job job = job_of(options);
  const Launcher launcher = find_launcher(options.mpi, {COSHARD_MPI_SHIMS});
  asio::io_context io(1);
  Supervisor supervisor(io, {job.ranks, random_nonce(), options.program.front(), !options.no_prefix,
                             job.hosts, options.start_timeout, options.grace});
  Environment environment = environment_of(launcher, job);
  environment.emplace_back(kAddressVariable, text_of(supervisor.address()));
  environment.emplace_back(kTokenVariable, supervisor.address().secret);
  supervisor.start_launcher(command_of(launcher, job), environment);
  io.run();
  return supervisor.code();
}

}  // namespace coshard::job
