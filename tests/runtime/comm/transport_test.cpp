#include "runtime/comm/transport.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/set_variable.h"

namespace coshard {
namespace {

TEST(Transport, IsWhatTheEnvironmentSays) {
  const testing::SetVariable ucx("UCX_TLS", "tcp,self"), btl("OMPI_MCA_btl", "self,vader"),
      other("OMPI_MCA_plm", "rsh");
  const std::vector<std::string> all = transport_settings();
  EXPECT_EQ(std::ranges::count(all, "UCX_TLS=tcp,self"), 1);
  EXPECT_EQ(std::ranges::count(all, "OMPI_MCA_btl=self,vader"), 1);
  EXPECT_EQ(std::ranges::count(all, "OMPI_MCA_plm=rsh"), 0);
  EXPECT_TRUE(std::ranges::is_sorted(all));
}

TEST(Transport, MayBeTcpWhereThatIsNamedOrSharedMemoryIsExcluded) {
  for (const char* setting : {"OMPI_MCA_btl=tcp,self", "UCX_TLS=tcp", "OMPI_MCA_btl=^vader",
                              "FI_PROVIDER=tcp", "MPIR_CVAR_NOLOCAL=1"})
    EXPECT_TRUE(may_be_tcp({"UCX_NET_DEVICES=all", setting})) << setting;
  for (const char* setting : {"OMPI_MCA_btl=vader,self", "UCX_TLS=posix,sysv,self"})
    EXPECT_FALSE(may_be_tcp({setting})) << setting;
  EXPECT_FALSE(may_be_tcp({}));
}

}  // namespace
}  // namespace coshard
