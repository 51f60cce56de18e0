#include "tools/run/launcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <coshard/runtime/error.h>

namespace coshard::job {
namespace {

namespace fs = std::filesystem;

// A PATH that has nothing but what a test puts there.
class Path {
 public:
  Path() : before_(std::getenv("PATH")) {
    std::string name = (fs::temp_directory_path() / "coshard_path_XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    ::setenv("PATH", folder_.c_str(), 1);
  }
  ~Path() {
    ::setenv("PATH", before_.c_str(), 1);
    fs::remove_all(folder_);
  }
  void add(const std::string& name, const std::string& version) {
    std::ofstream(folder_ + "/" + name) << "#!/bin/sh\necho '" << version << "'\n";
    fs::permissions(folder_ + "/" + name, fs::perms::owner_all);
  }
  std::string operator/(const std::string& name) const { return folder_ + "/" + name; }

 private:
  std::string before_, folder_;
};

constexpr const char* kOpenMpi = "mpirun (Open MPI) 4.1.4\nhttp://www.open-mpi.org/";
constexpr const char* kHydra = "HYDRA build details:";

TEST(FindLauncher, TellsTheMpiOfMpirunByItsVersion) {
  Path path;
  path.add("mpirun", kHydra);
  EXPECT_EQ(find_launcher("", {}).mpi, "mpich");
  EXPECT_EQ(find_launcher("mpich", {}).path, path / "mpirun");
  EXPECT_THROW(find_launcher("openmpi", {}), Error);
  path.add("mpirun", kOpenMpi);
  EXPECT_EQ(find_launcher("", {}).mpi, "openmpi");
}

TEST(FindLauncher, TakesOneThatThisBuildCanUse) {
  Path path;
  path.add("mpirun.openmpi", kOpenMpi);
  path.add("mpirun.mpich", kHydra);
  EXPECT_EQ(find_launcher("", {"mpich"}).path, path / "mpirun.mpich");
  EXPECT_EQ(find_launcher("", {"openmpi", "mpich"}).path, path / "mpirun.openmpi");
  EXPECT_EQ(find_launcher("openmpi", {"mpich"}).path, path / "mpirun.openmpi");
}

TEST(FindLauncher, NamesThePackagesWhereThereIsNone) {
  const Path path;
  const auto refusal = [](const char* mpi) {
    try {
      find_launcher(mpi, {});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_EQ(
      refusal(""),
      "there is no mpirun of openmpi or mpich in PATH; on Debian it is in the package mpich or "
      "openmpi-bin");
  EXPECT_EQ(refusal("mpich"),
            "there is no mpirun of mpich in PATH; on Debian it is in the package mpich");
}

const Launcher kOmpi{"openmpi", "/o/mpirun"}, kMpich{"mpich", "/m/mpirun"};
using Words = std::vector<std::string>;

TEST(LauncherCommand, StartsGuardsOnTheHosts) {
  Job job{3, {}, 8, false, {"A", "B"}, {"coshard", "guard", "p"}};
  EXPECT_EQ(command_of(kOmpi, job),
            (Words{"/o/mpirun", "-n", "3", "-x", "A", "-x", "B", "coshard", "guard", "p"}));
  EXPECT_EQ(command_of(kMpich, job), (Words{"/m/mpirun", "-n", "3", "coshard", "guard", "p"}));
  job.hosts = {{"a", 2}, {"b", 1}};
  EXPECT_EQ(command_of(kOmpi, job), (Words{"/o/mpirun", "-n", "3", "--host", "a:2,b:1", "-x", "A",
                                           "-x", "B", "coshard", "guard", "p"}));
  EXPECT_EQ(command_of(kMpich, job),
            (Words{"/m/mpirun", "-n", "3", "-hosts", "a:2,b:1", "coshard", "guard", "p"}));
}

bool sets(const Launcher& launcher, const Job& job, const std::string& name) {
  return std::ranges::any_of(environment_of(launcher, job),
                             [&](const auto& each) { return each.first == name; });
}

TEST(LauncherEnvironment, MoreRanksThanCoresYield) {
  Job job{4, {}, 4, false, {}, {}};
  const char* yield = "OMPI_MCA_mpi_yield_when_idle";
  EXPECT_FALSE(sets(kOmpi, job, yield));
  job.ranks = 5;
  EXPECT_TRUE(sets(kOmpi, job, yield));
  EXPECT_TRUE(sets(kOmpi, job, "OMPI_MCA_rmaps_base_oversubscribe"));
  job.hosts = {{"a", 3}, {"b", 2}};
  EXPECT_FALSE(sets(kOmpi, job, yield));
  EXPECT_EQ(environment_of(kMpich, job), (Environment{{"UCX_DEBUG_SIGNO", "0"}}));
}

TEST(LauncherEnvironment, MpichOnOneHostDoesNotReadTheMemoryOfProcessesThatMayHaveDied) {
  Job job{2, {}, 4, false, {}, {}};
  ::unsetenv("UCX_TLS");
  EXPECT_TRUE(sets(kMpich, job, "UCX_TLS"));
  EXPECT_FALSE(sets(kOmpi, job, "UCX_TLS"));
  ::setenv("SLURM_JOB_ID", "7", 1);
  EXPECT_FALSE(sets(kMpich, job, "UCX_TLS"));
  ::unsetenv("SLURM_JOB_ID");
  ::setenv("UCX_TLS", "all", 1);
  EXPECT_FALSE(sets(kMpich, job, "UCX_TLS"));
  ::unsetenv("UCX_TLS");
  job.hosts = {{"a", 1}, {"b", 1}};
  EXPECT_FALSE(sets(kMpich, job, "UCX_TLS"));
}

TEST(LauncherEnvironment, OpenMpiTellsHostsApartThatDifferInTheirDomain) {
  Job job{2, {}, 4, false, {}, {}};
  const char* keep = "OMPI_MCA_orte_keep_fqdn_hostnames";
  EXPECT_FALSE(sets(kOmpi, job, keep));
  job.hosts = {{"a.x", 1}, {"a.y", 1}};
  EXPECT_TRUE(sets(kOmpi, job, keep));
  EXPECT_FALSE(sets(kMpich, job, keep));
  ::setenv(keep, "0", 1);
  EXPECT_FALSE(sets(kOmpi, job, keep));
  ::unsetenv(keep);
}

TEST(LauncherEnvironment, RootMayRunAndWhatIsSetStays) {
  Job job{1, {}, 4, false, {}, {}};
  ::unsetenv("OMPI_ALLOW_RUN_AS_ROOT");
  EXPECT_FALSE(sets(kOmpi, job, "OMPI_ALLOW_RUN_AS_ROOT"));
  job.root = true;
  EXPECT_TRUE(sets(kOmpi, job, "OMPI_ALLOW_RUN_AS_ROOT"));
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "0", 1);
  EXPECT_FALSE(sets(kOmpi, job, "OMPI_ALLOW_RUN_AS_ROOT"));
  ::unsetenv("OMPI_ALLOW_RUN_AS_ROOT");
}

}  // namespace
}  // namespace coshard::job
