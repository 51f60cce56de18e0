#include "runtime/launch/host.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

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

}  // namespace
}  // namespace coshard
