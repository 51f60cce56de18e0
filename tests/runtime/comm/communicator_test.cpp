// What issue() adds to a collective before a back end starts it.
#include <gtest/gtest.h>

#include <vector>

#include <coshard/runtime/comm/communicator.h>
#include <coshard/runtime/coro/branch.h>
#include <coshard/runtime/error.h>

namespace coshard {
namespace {

// Keeps what it was asked to start.
class Recording final : public Communicator {
 public:
  int rank() const override { return 1; }
  int size() const override { return 2; }
  std::string_view name() const override { return "recording"; }
  std::shared_ptr<Communicator> subgroup(std::span<const int>, std::string) override { return {}; }
  void poison(const std::string&) override {}
  std::uint64_t issued() const override { return started.size(); }
  std::uint64_t order_hash() const override { return 0; }
  void set_timeout(std::int64_t) override {}
  void observe(ObserverSlot) override {}
  std::vector<Collective> started;

 private:
  std::shared_ptr<WorkState> start(Collective collective) override {
    started.push_back(std::move(collective));
    return nullptr;
  }
};

TEST(Issue, PutsItDownToTheCallersLineAndBranch) {
  Recording communicator;
  const int line = __LINE__ + 1;
  static_cast<void>(communicator.issue(Collective()));
  ASSERT_EQ(communicator.started.size(), 1U);
  EXPECT_EQ(communicator.started[0].where.line, line);
  EXPECT_EQ(communicator.started[0].branch, Branch::current().id());
}

TEST(Issue, RefusesWhatDoesNotFitAndStartsNothing) {
  Recording communicator;
  Collective bad;
  bad.kind = CollectiveKind::Broadcast;
  bad.extent = 1;
  bad.root = 2;
  EXPECT_THROW(static_cast<void>(communicator.issue(bad)), Error);
  Branch::current().unordered = true;
  EXPECT_THROW(static_cast<void>(communicator.issue(Collective())), Error);
  Branch::current().unordered = false;
  EXPECT_TRUE(communicator.started.empty());
}

TEST(Issue, CarriesTheSumOfWhatWasNotedInAnyOrder) {
  Recording a, b;
  const Noted draw{"drew", "numbers of", 3, 7}, other{"ran", "", 1, 0};
  a.note(draw);
  a.note(other);
  b.note(other);
  b.note(draw);
  static_cast<void>(a.issue(Collective()));
  static_cast<void>(b.issue(Collective()));
  EXPECT_NE(a.started[0].noted, 0U);
  EXPECT_EQ(a.started[0].noted, b.started[0].noted);
  EXPECT_EQ(a.started[0].last_noted.what, "ran");
  Notes before;
  before.add(draw);
  b.note(before);
  static_cast<void>(b.issue(Collective()));
  EXPECT_NE(b.started[1].noted, b.started[0].noted);
  EXPECT_EQ(b.started[1].last_noted.what, "drew");
}

TEST(Issue, ABranchWithoutOrderNotesNothing) {
  Recording communicator;
  Branch::current().unordered = true;
  communicator.note(Noted{"drew", "", 1, 1});
  Branch::current().unordered = false;
  static_cast<void>(communicator.issue(Collective()));
  EXPECT_EQ(communicator.started[0].noted, 0U);
}

}  // namespace
}  // namespace coshard
