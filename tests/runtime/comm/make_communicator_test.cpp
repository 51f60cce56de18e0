// A communicator from outside of the tree: what it takes to add one, and that a world runs on it.
#include <gtest/gtest.h>

#include <atomic>
#include <utility>

#include <coshard/runtime/launch/world.h>
#include "runtime/comm/make_communicator.h"
#include "tests/support/ends.h"
#include "tests/support/errors.h"

namespace coshard::testing {
namespace {
using testing::Boom;
using testing::quick_options;

// What is issued on it is issued on another one.
class DummyWork final : public WorkState {
 public:
  explicit DummyWork(Work inner) : WorkState(inner.state()), inner_(std::move(inner)) {}
  std::string describe() const override { return "a dummy"; }

 private:
  Work inner_;
};

class DummyCommunicator final : public Communicator {
 public:
  inline static std::atomic<int> issues{0};

  explicit DummyCommunicator(std::shared_ptr<Communicator> inner) : inner_(std::move(inner)) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string_view name() const override { return inner_->name(); }
  std::shared_ptr<Communicator> subgroup(std::span<const int> ranks, std::string name) override {
    return std::make_shared<DummyCommunicator>(inner_->subgroup(ranks, std::move(name)));
  }
  void poison(const std::string& cause) override { inner_->poison(cause); }
  std::uint64_t issued() const override { return inner_->issued(); }
  std::uint64_t order_hash() const override { return inner_->order_hash(); }
  void set_timeout(std::int64_t ns) override { inner_->set_timeout(ns); }
  void observe(ObserverSlot slot) override { inner_->observe(std::move(slot)); }

 private:
  std::shared_ptr<WorkState> start(Collective collective) override {
    ++issues;
    return std::make_shared<DummyWork>(inner_->issue(std::move(collective)));
  }

  std::shared_ptr<Communicator> inner_;
};

const CommunicatorBackend dummy_backend = {
    "dummy", [](std::shared_ptr<Communicator> control, const std::shared_ptr<Device>&) {
      return std::shared_ptr<Communicator>(std::make_shared<DummyCommunicator>(std::move(control)));
    }};
const bool added = add_communicator(dummy_backend);

TEST(DummyCommunicator, IsOneOfTheNamesAndMayNotBeAddedTwice) {
  EXPECT_TRUE(added);
  EXPECT_TRUE(has_communicator("dummy"));
  EXPECT_NE(communicator_names().find("local"), std::string::npos);
  EXPECT_NE(communicator_names().find(", dummy"), std::string::npos);
  const CommunicatorLibrary none = communicator_libraries().back();
  EXPECT_EQ(none.communicator, "dummy");
  EXPECT_EQ(none.version + none.problem, "");
  EXPECT_THROW(add_communicator(dummy_backend), Error);
}

Task<void> sum_twice(World& world) {
  const std::vector<int> all{1, 0};
  const auto group = world.group(all, "tp");
  for (Communicator* communicator : {world.communicator().get(), group.get()}) {
    float value = static_cast<float>(world.rank() + 1);
    Collective c;
    c.kind = CollectiveKind::AllReduce;
    c.extent = 1;
    c.send = c.recv = &value;
    const Work work = communicator->issue(c);
    co_await work;
    EXPECT_EQ(value, 3.0F);
  }
}

TEST(DummyCommunicator, CarriesTheWorldThatAsksForItByName) {
  WorldOptions options = quick_options(2);
  options.communicator = "dummy";
  const int before = DummyCommunicator::issues;
  run_ranks(options, sum_twice);
  EXPECT_EQ(DummyCommunicator::issues - before, 4);
}

Task<void> one_throws(World& world) {
  if (world.rank() == 1) throw Boom();
  const Work work = world.communicator()->issue(Collective());
  co_await work;
}

TEST(DummyCommunicator, EndsWithTheFailureOfARank) {
  WorldOptions options = quick_options(2);
  options.communicator = "dummy";
  EXPECT_THROW(run_ranks(options, one_throws), Boom);
}

Task<void> one_leaves(World& world) {
  if (world.rank() == 1) co_return;
  const Work work = world.communicator()->issue(Collective());
  co_await work;
}

TEST(DummyCommunicator, IsToldOfARankThatHasLeft) {
  WorldOptions options = quick_options(2);
  options.communicator = "dummy";
  try {
    run_ranks(options, one_leaves);
    FAIL();
  } catch (const PeerFailure& error) {
    EXPECT_NE(std::string(error.what()).find("rank 1 left the program"), std::string::npos)
        << error.what();
  }
}

TEST(Communicators, OneThatIsNotThereIsNamedOnceBeforeAnyRankStarts) {
  WorldOptions options = quick_options(2);
  options.communicator = "smoke";
  const std::string text =
      testing::error_text(ErrorKind::Unsupported, [&] { run_ranks(options, one_throws); });
  EXPECT_NE(text.find("unknown communicator 'smoke'; this build has local"), std::string::npos)
      << text;
}

}  // namespace
}  // namespace coshard::testing
