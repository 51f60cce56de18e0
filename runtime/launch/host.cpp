#include "runtime/launch/host.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

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

}  // namespace

std::string host_id() { return id_of("/proc/self/ns/net"); }
std::string pid_space_id() { return id_of("/proc/self/ns/pid"); }

std::string host_name() {
  char name[256] = "";
  (void)::gethostname(name, sizeof name - 1);
  return name;
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

}  // namespace coshard
