#include <gtest/gtest.h>

#include <coshard/runtime/launch/command_line.h>
#include "tests/support/ranks.h"

namespace coshard::testing {
namespace {

WorldOptions options_of(std::vector<std::string> words) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  int argc = static_cast<int>(argv.size());
  return take_world_options(argc, argv.data());
}

TEST(RelayCommunicator, IsSelectedByItsWordAndReduces) {
  const WorldOptions options = options_of({"test", "--communicator", "relay"});
  run_ranks(options, [](World& world) -> Task<void> {
    double mine = world.rank() + 1, sum = 0;
    Collective all;
    all.kind = CollectiveKind::AllReduce;
    all.dtype = DType::F64;
    all.send = &mine, all.recv = &sum, all.extent = 1;
    Work work = world.communicator()->issue(std::move(all));
    EXPECT_EQ(work.state()->describe().substr(0, 7), "relayed");
    co_await work;
    EXPECT_EQ(sum, 3);
  });
}

TEST(RelayCommunicator, IsWhatHelpAndErrorsName) {
  try {
    (void)options_of({"test", "--communicator", "rely"});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("relay"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace coshard::testing
