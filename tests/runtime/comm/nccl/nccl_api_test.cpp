// The NCCL that runs is older than the one that was built with, or has no use for the device.
#include "runtime/comm/nccl/nccl_api.h"
#include "runtime/comm/make_communicator.h"
#include "tests/runtime/comm/nccl/nccl_ranks.h"

namespace coshard::testing {
namespace {

class NcclVersion : public ::testing::Test {
 protected:
  void TearDown() override { set_fake_nccl_version(0); }
};

TEST_F(NcclVersion, AnOptionThatIsNewerThanTheLibraryIsRefusedWithBothVersions) {
  set_fake_nccl_version(21805);
  NcclSetting setting{.ranks = 2};
  setting.options.copy_engine = true;
  for (const NcclOutcome& outcome : nccl_outcomes(setting, [](NcclRank&) {})) {
    ASSERT_TRUE(outcome.failed);
    EXPECT_EQ(outcome.kind, ErrorKind::Unsupported);
    EXPECT_EQ(outcome.text,
              "copy-engine collectives need NCCL 2.28.3; this process runs 2.18.5 (built with " +
                  nccl_version_text(NCCL_VERSION_CODE) + ")");
  }
}

TEST_F(NcclVersion, ALibraryWithoutNonBlockingCommunicatorsIsRefused) {
  set_fake_nccl_version(21304);
  const auto outcomes = nccl_outcomes({.ranks = 1}, [](NcclRank&) {});
  EXPECT_EQ(outcomes[0].kind, ErrorKind::Unsupported);
  EXPECT_NE(outcomes[0].text.find("2.14.0"), std::string::npos) << outcomes[0].text;
}

TEST_F(NcclVersion, AnOldLibraryDoesWhatNeedsNothingNew) {
  set_fake_nccl_version(21403);
  on_nccl_ranks({.ranks = 2}, [](NcclRank& mine) {
    const NcclNumbers numbers(mine, {1, 2});
    const std::vector<int> both{0, 1};
    mine.comm->split(both, "all")->issue(nccl_sum_of(numbers)).wait();
    EXPECT_EQ(numbers.get(), (std::vector<float>{2, 4}));
    const NcclOutcome window = outcome_of([&] { mine.comm->symmetric_buffer(64); });
    EXPECT_EQ(window.kind, ErrorKind::Unsupported);
  });
  EXPECT_EQ(FakeDriver::get().complaints(), std::vector<std::string>());
}

TEST_F(NcclVersion, DevicesThatDoNotReachEachOtherHaveNoWindows) {
  FakeDriver::get().set_peer_access(false);
  NcclSetting setting{.ranks = 2};
  setting.options.copy_engine = true;
  on_nccl_ranks(setting, [](NcclRank& mine) {
    const NcclOutcome window = outcome_of([&] { mine.comm->symmetric_buffer(64); });
    EXPECT_EQ(window.kind, ErrorKind::Unsupported);
    EXPECT_NE(window.text.find("no window"), std::string::npos) << window.text;
  });
  FakeDriver::get().set_peer_access(true);
}

TEST_F(NcclVersion, AHostDeviceIsRefusedByName) {
  ThreadGroup thread_group(1);
  const NcclOutcome outcome = outcome_of(
      [&] { make_communicator("nccl", thread_group.communicator(0), make_cpu_device(1)); });
  EXPECT_EQ(outcome.kind, ErrorKind::Unsupported);
  EXPECT_NE(outcome.text.find("cpu"), std::string::npos) << outcome.text;
}

TEST_F(NcclVersion, VersionsAreWrittenAsPeopleWriteThem) {
  EXPECT_EQ(nccl_version_text(22809), "2.28.9");
  EXPECT_EQ(nccl_version_text(21805), "2.18.5");
}

}  // namespace
}  // namespace coshard::testing
