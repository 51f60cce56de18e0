#include "runtime/host.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <locale>
#include <thread>

#include <boost/asio/ip/address.hpp>

#include <coshard/runtime/error.h>

namespace coshard {

namespace {

// Identifies this boot and a namespace of this process.
std::string id_of(const char* space) {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat info {};
  if (::stat(space, &info) != 0) return boot;
  return str_cat(boot, ':', info.st_ino);
}

// Of any number of processors: a cpu_set_t holds 1024.
int cores_of_affinity() {
  for (int most = 1024; most <= 1 << 20; most *= 2) {
    std::vector<cpu_set_t> mask(CPU_ALLOC_SIZE(most) / sizeof(cpu_set_t) + 1);
    const std::size_t bytes = mask.size() * sizeof(cpu_set_t);
    if (::sched_getaffinity(0, bytes, mask.data()) == 0) return CPU_COUNT_S(bytes, mask.data());
  }
  return static_cast<int>(std::thread::hardware_concurrency());
}

// Cores, of "max 100000" or "50000 100000": microseconds per period (cgroup v2). Infinite: no
// limit.
double quota_of(std::istream&& file) {
  double quota = 0, period = 0;
  file.imbue(std::locale::classic());
  return file >> quota >> period && quota > 0 && period > 0
             ? quota / period
             : std::numeric_limits<double>::infinity();
}

// The two files of cgroup v1.
double quota_of(std::istream&& quota_file, std::istream&& period_file) {
  double quota = 0, period = 0;
  quota_file.imbue(std::locale::classic());
  period_file.imbue(std::locale::classic());
  return quota_file >> quota && period_file >> period && quota > 0 && period > 0
             ? quota / period
             : std::numeric_limits<double>::infinity();
}

// In a container the path may be that on the host, of which only the root is mounted.
double least_quota(const std::filesystem::path& mounted, const std::string& path, bool second) {
  double least = std::numeric_limits<double>::infinity();
  std::filesystem::path folder = mounted / std::filesystem::path(path).relative_path();
  for (;; folder = folder.parent_path()) {
    const double quota = second ? quota_of(std::ifstream(folder / "cpu.max"))
                                : quota_of(std::ifstream(folder / "cpu.cfs_quota_us"),
                                           std::ifstream(folder / "cpu.cfs_period_us"));
    least = std::min(least, quota);
    if (folder == mounted || folder == folder.parent_path()) return least;
  }
}

// Lines are "0::/path" (v2) or "4:cpu,cpuacct:/path" (v1).
double quota_of_this_process(const std::string& root) {
  double least = std::numeric_limits<double>::infinity();
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string kinds = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (kinds == ",,")
      least = std::min(least, least_quota(root + "/sys/fs/cgroup", path, true));
    else if (kinds.find(",cpu,") != std::string::npos)
      least = std::min(least, least_quota(root + "/sys/fs/cgroup/cpu", path, false));
  }
  return least;
}

}  // namespace

std::string host_id() { return id_of("/proc/self/ns/net"); }
std::string pid_space_id() { return id_of("/proc/self/ns/pid"); }

std::string host_name() {
  char name[256] = "";
  (void)::gethostname(name, sizeof name - 1);
  return name;
}

std::string listen_remedy(int error) {
  return error == EADDRNOTAVAIL ? "; bring the loopback interface up (ip link set lo up)" : "";
}

std::vector<std::string> addresses_of_this_host() {
  std::vector<std::string> four, six;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return {};
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_UP) == 0 ||
        (one->ifa_flags & IFF_LOOPBACK) != 0)
      continue;
    const void* address = one->ifa_addr;
    if (one->ifa_addr->sa_family == AF_INET) {
      const auto* known = static_cast<const sockaddr_in*>(address);
      four.push_back(boost::asio::ip::address_v4(ntohl(known->sin_addr.s_addr)).to_string());
    } else if (one->ifa_addr->sa_family == AF_INET6) {
      boost::asio::ip::address_v6::bytes_type bytes;
      std::copy_n(static_cast<const sockaddr_in6*>(address)->sin6_addr.s6_addr, bytes.size(),
                  bytes.begin());
      const boost::asio::ip::address_v6 known(bytes);
      if (!known.is_link_local()) six.push_back(known.to_string());
    }
  }
  ::freeifaddrs(all);
  four.insert(four.end(), six.begin(), six.end());
  return four;
}

int usable_cores(const std::string& root) {
  const int allowed = std::max(1, cores_of_affinity());
  const double quota = quota_of_this_process(root);
  return quota < allowed ? std::max(1, static_cast<int>(std::ceil(quota))) : allowed;
}

}  // namespace coshard
