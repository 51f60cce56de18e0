// Where processes without MPI meet. Those that meet run in tests of programs (torchrun_test.py).
#include "runtime/launch/store.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include <coshard/runtime/error.h>

namespace coshard {
namespace {

Launched by_torchrun(std::string address, std::optional<int> local) {
  Launched job{.launcher = "torchrun", .said = "WORLD_SIZE=4 and RANK=1"};
  job.processes = 4;
  job.process = 1;
  job.local_processes = local;
  job.master_addr = std::move(address);
  job.master_port = "29500";
  return job;
}

Environment environment_of(std::map<std::string, std::string> variables) {
  return [all = std::move(variables)](const char* name) -> std::optional<std::string> {
    const auto found = all.find(name);
    return found == all.end() ? std::nullopt : std::optional(found->second);
  };
}

std::string error_of(const Launched& job, const Environment& environment) {
  try {
    (void)meeting_point(job, environment);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Store, IsOnLoopbackWhereAllProcessesAreOnThisHost) {
  for (const auto& [address, local] : std::map<std::string, std::optional<int>>{
           {"node1", 4}, {"localhost", 2}, {"127.0.0.1", std::nullopt}, {"::1", std::nullopt}}) {
    const MeetingPoint where = meeting_point(by_torchrun(address, local), environment_of({}));
    EXPECT_FALSE(where.beyond) << address;
    EXPECT_EQ(where.address.hosts, std::vector<std::string>{"127.0.0.1"}) << address;
    EXPECT_EQ(where.address.port, 29501) << address;
  }
}

TEST(Store, JobsWithoutATokenThatShareAPortKeepApart) {
  const auto secret = [](const char* port) {
    Launched job = by_torchrun("localhost", 4);
    job.master_port = port;
    return meeting_point(job, environment_of({{"COSHARD_PORT", "7000"}})).address.secret;
  };
  EXPECT_EQ(secret("29500"), secret("29500"));
  EXPECT_NE(secret("29500"), secret("29600"));
}

TEST(Store, IsOpenToOtherHostsOnlyWithAToken) {
  EXPECT_EQ(error_of(by_torchrun("node1", 2), environment_of({})),
            "WORLD_SIZE=4 and RANK=1 on several hosts (MASTER_ADDR=node1) without COSHARD_TOKEN: "
            "set it to the same secret in every process, or start them with mpirun or srun");
  const MeetingPoint where = meeting_point(
      by_torchrun("node1", 2), environment_of({{"COSHARD_TOKEN", "t"}, {"COSHARD_PORT", "7000"}}));
  EXPECT_TRUE(where.beyond);
  EXPECT_EQ(where.address.hosts, std::vector<std::string>{"node1"});
  EXPECT_EQ(where.address.port, 7000);
  EXPECT_EQ(where.address.secret, "t");
}

TEST(Store, APortThatIsNoneIsNamed) {
  Launched job = by_torchrun("localhost", 4);
  EXPECT_EQ(error_of(job, environment_of({{"COSHARD_PORT", "70000"}})),
            "COSHARD_PORT=70000 is not a port from 1 to 65535");
  for (const char* port : {"", "x", "65535", "0", "-1", "80x"}) {
    job.master_port = port;
    EXPECT_EQ(error_of(job, environment_of({})),
              str_cat("MASTER_PORT=", port, " is not a port from 1 to 65534"));
  }
}

}  // namespace
}  // namespace coshard
