#include "runtime/host.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

namespace coshard {
namespace {

TEST(Host, IsTheSameForAllProcessesOfANetworkNamespace) {
  EXPECT_EQ(host_id(), host_id());
  EXPECT_FALSE(host_name().empty());
  EXPECT_EXIT(
      {
        const std::string before = host_id();
        if (::unshare(CLONE_NEWNET) != 0) ::_exit(7);  // not allowed here
        ::_exit(host_id() != before ? 7 : 8);
      },
      ::testing::ExitedWithCode(7), "");
}

TEST(Host, HasAddressesThatOthersCanReach) {
  const std::vector<std::string> all = addresses_of_this_host();
  EXPECT_EQ(std::ranges::count(all, "127.0.0.1"), 0);
  EXPECT_EQ(std::ranges::count(all, "::1"), 0);
  const auto six = [](const std::string& address) {
    return address.find(':') != std::string::npos;
  };
  EXPECT_TRUE(std::ranges::is_partitioned(all, [&](const auto& a) { return !six(a); }));
}

namespace fs = std::filesystem;

// A folder with the files of a control group.
struct Root {
  Root() {
    char name[] = "/tmp/coshard-cores-XXXXXX";
    path = ::mkdtemp(name);
  }
  ~Root() { fs::remove_all(path); }
  Root(const Root&) = delete;
  Root& operator=(const Root&) = delete;
  void write(const std::string& file, const std::string& text) const {
    fs::create_directories(fs::path(path + file).parent_path());
    std::ofstream(path + file) << text << '\n';
  }
  std::string path;
};

// What the affinity mask alone allows.
int allowed() { return usable_cores("/no/such/folder"); }

TEST(Cores, AreThoseOfTheAffinityMask) {
  int seen = 0;
  std::thread bound([&] {
    cpu_set_t before, one;
    ::sched_getaffinity(0, sizeof before, &before);
    CPU_ZERO(&one);
    int first = 0;
    while (!CPU_ISSET(first, &before)) ++first;
    CPU_SET(first, &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    seen = allowed();
  });
  bound.join();
  EXPECT_EQ(seen, 1);
  EXPECT_GE(allowed(), 1);
}

TEST(Cores, AreNoMoreThanTheQuotaRoundedUp) {
  const Root root;
  root.write("/proc/self/cgroup", "0::/a/b");
  EXPECT_EQ(usable_cores(root.path), allowed());
  root.write("/sys/fs/cgroup/a/b/cpu.max", "max 100000");
  EXPECT_EQ(usable_cores(root.path), allowed());
  root.write("/sys/fs/cgroup/a/b/cpu.max", "50000 100000");
  EXPECT_EQ(usable_cores(root.path), 1);
  root.write("/sys/fs/cgroup/a/b/cpu.max", "150000 100000");
  EXPECT_EQ(usable_cores(root.path), std::min(2, allowed()));
}

struct SpacedFacet final : std::numpunct<char> {  // as in French
  char do_thousands_sep() const override { return ' '; }
  std::string do_grouping() const override { return "\3"; }
};
TEST(Cores, AreCountedAlikeInEveryLocale) {
  const std::locale before = std::locale::global(std::locale(std::locale(), new SpacedFacet));
  const Root root;
  root.write("/proc/self/cgroup", "0::/a");
  root.write("/sys/fs/cgroup/a/cpu.max", "50000 100000");
  EXPECT_EQ(usable_cores(root.path), 1);
  std::locale::global(before);
}

TEST(Cores, AreNoMoreThanTheQuotaOfAGroupAround) {
  const Root root;
  root.write("/proc/self/cgroup", "0::/a/b");
  root.write("/sys/fs/cgroup/a/cpu.max", "90000 100000");
  root.write("/sys/fs/cgroup/a/b/cpu.max", "max 100000");
  EXPECT_EQ(usable_cores(root.path), 1);
}

// The path is that on the host; the root alone is mounted.
TEST(Cores, AreNoMoreThanTheQuotaOfAContainer) {
  const Root root;
  root.write("/proc/self/cgroup", "0::/system.slice/docker-1.scope");
  root.write("/sys/fs/cgroup/cpu.max", "100000 100000");
  EXPECT_EQ(usable_cores(root.path), 1);
}

TEST(Cores, AreNoMoreThanTheQuotaOfTheFirstVersion) {
  const Root root;
  root.write("/proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/x\n0::/x");
  root.write("/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "-1");
  root.write("/sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000");
  EXPECT_EQ(usable_cores(root.path), allowed());
  root.write("/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "20000");
  EXPECT_EQ(usable_cores(root.path), 1);
}

}  // namespace
}  // namespace coshard
