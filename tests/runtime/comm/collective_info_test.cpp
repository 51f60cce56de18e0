// Texts of errors about collectives: what is awaited, who is missing, what was last seen.
#include <gtest/gtest.h>

#include <string>

#include <coshard/runtime/comm/communicator.h>
#include "runtime/comm/collective_info.h"

namespace coshard {
namespace {

Collective gather() {
  Collective c;
  c.kind = CollectiveKind::AllGather;
  c.extent = 4;
  c.label = "S(0)->R";
  c.where = CallSite::current();
  return c;
}

TEST(AwaitedText, NamesKindNumberCommunicatorLabelAndLine) {
  const CollectiveInfo awaited(gather(), 41, 3);
  const std::string text = awaited.text("tp[4]");
  EXPECT_EQ(text.find("all_gather #41 on tp[4] (S(0)->R)"), 0U) << text;
  EXPECT_NE(text.find("collective_info_test.cpp:"), std::string::npos) << text;
  EXPECT_EQ(CollectiveInfo(Collective(), 0, 0).text("w[2]").find("barrier #0 on w[2]"), 0U);
}

TEST(AwaitedText, ATimeoutSaysHowLongWhoAndWhoIsMissing) {
  const std::string text =
      CollectiveInfo(gather(), 1, 3).timeout_text("tp[4]", 1'540'000'000, "missing: 2");
  for (const char* part : {"1.5 s", "rank 3", "all_gather #1", "missing: 2"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(AwaitedText, AShortTimeIsNotNone) {
  const CollectiveInfo awaited(gather(), 1, 3);
  for (const auto& [ns, told] :
       std::vector<std::pair<std::int64_t, std::string>>{{60'000'000'000, " 60.0 s "},
                                                         {50'000'000, " 0.1 s "},
                                                         {49'000'000, " 49.0 ms "},
                                                         {1'500'000, " 1.5 ms "},
                                                         {40'000, " 40.0 us "},
                                                         {100, " 0.1 us "}}) {
    const std::string text = awaited.timeout_text("tp[4]", ns, "missing: 2");
    EXPECT_NE(text.find(told), std::string::npos) << text;
  }
}

TEST(AwaitedText, ARankThatLeftIsNamedWithItsLastCollective) {
  const CollectiveInfo awaited(gather(), 5, 3);
  EXPECT_NE(awaited.lost_text("tp[4]", 1, 5).find("#4"), std::string::npos);
  EXPECT_EQ(awaited.lost_text("tp[4]", 1, 0).find('#'),
            awaited.lost_text("tp[4]", 1, 0).rfind('#'));
  EXPECT_NE(awaited.lost_text("tp[4]", 1, 0).find("issued no collective on tp[4]"),
            std::string::npos);
  const PeerFailure failure = awaited.poisoned("tp[4]", "boom");
  EXPECT_EQ(failure.kind(), ErrorKind::CommFailed);
  EXPECT_NE(std::string(failure.what()).find("boom"), std::string::npos);
}

TEST(AwaitedText, LastIssuedCountsFromZeroAndSaysWhenThereIsNone) {
  EXPECT_EQ(LastIssued().text("tp[4]"), "has issued no collective on tp[4] yet");
  const LastIssued last{40, CollectiveKind::AllReduce, 0};
  EXPECT_NE(last.text("tp[4]").find("#39 all_reduce on tp[4] "), std::string::npos);
}

TEST(AwaitedText, ACallSaysItsBranch) {
  Collective c = gather();
  EXPECT_NE(call_text(c, 4, 2).find("rank 2 calls all_gather"), std::string::npos);
  EXPECT_NE(call_text(c, 4, 2).find("branch main"), std::string::npos);
  c.branch_path = std::make_shared<const std::string>("0.1");
  EXPECT_NE(call_text(c, 4, 2).find("branch 0.1"), std::string::npos);
}

}  // namespace
}  // namespace coshard
