#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>

#include "tests/integration/training.h"

namespace coshard::testing {
namespace {

// Sleeps a little, at random, wherever the library tells it something, and writes down what was
// issued.
class Delays final : public Observer {
 public:
  Delays(World& world, unsigned seed) : world_(world), random_(seed) { world_.add_observer(this); }
  ~Delays() override { world_.remove_observer(this); }
  void issued(const CommEvent& event, std::int64_t) override {
    const bool between_two =
        event.kind == CollectiveKind::Send || event.kind == CollectiveKind::Recv;
    if (between_two) return;
    issues_.push_back(str_cat(event.communicator, " ", event.sequence, " ", to_string(event.kind),
                              " ", event.label));
    nap();
  }
  void ready(const CommEvent&, std::int64_t, std::int64_t, std::int64_t) override { nap(); }
  void module_enter(std::string_view) override { nap(); }
  const std::vector<std::string>& issues() const { return issues_; }

 private:
  void nap() {
    if (random_() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random_() % 300));
  }
  World& world_;
  std::mt19937 random_;
  std::vector<std::string> issues_;
};

struct Issues {
  std::vector<std::string> issues;
  std::uint64_t hash = 0;
};

Task<void> delayed_rank(World& world, unsigned seed, const train::Options& options,
                        const train::Text& text, train::Outcome& outcome,
                        std::vector<Issues>& found) {
  Delays delays(world, seed + static_cast<unsigned>(world.rank()));
  Task<void> training = train::train_rank(world, options, text, outcome);
  co_await std::move(training);
  Issues& mine = found[static_cast<std::size_t>(world.rank())];
  mine.issues = delays.issues();
  mine.hash = world.communicator()->order_hash();
}

std::vector<Issues> run_delayed(const train::Options& options, unsigned seed,
                                std::vector<double>& losses) {
  const train::Text text(options.text, options.seq);
  train::Outcome outcome;
  std::vector<Issues> found(static_cast<std::size_t>(options.ranks));
  const Program program = [&](World& world) {
    return delayed_rank(world, seed, options, text, outcome, found);
  };
  run_ranks(world_of(options), program);
  losses = outcome.loss;
  return found;
}

TEST(IssueOrder, IsTheSameOnAllRanksUnderRandomDelays) {
  const TextFile text;
  train::Options options = small_options(text);
  options.ranks = 4;
  options.batch = 4;
  options.steps = 4;
  for (const char* plan : {"tp", "tp-sp", "dp", "fsdp"}) {
    options.plan = plan;
    std::vector<double> first_losses;
    const std::vector<Issues> first = run_delayed(options, 1, first_losses);
    // Replicas: in each step the loss, and all gradients of so small a model.
    ASSERT_GE(first[0].issues.size(), options.data_parallel() ? 8U : 51U);
    for (unsigned seed = 10; seed <= 30; seed += 10) {
      std::vector<double> losses;
      const std::vector<Issues> again = run_delayed(options, seed, losses);
      EXPECT_EQ(losses, first_losses);
      for (const Issues& rank : again) {
        EXPECT_EQ(rank.issues, first[0].issues);
        EXPECT_EQ(rank.hash, again[0].hash);
      }
    }
  }
}

Task<void> train_or_throw(World& world, const train::Options& options, const train::Text& text,
                          train::Outcome& outcome) {
  if (world.rank() == 1) fail(ErrorKind::Unsupported, "rank 1 has had enough");
  Task<void> training = train::train_rank(world, options, text, outcome);
  co_await std::move(training);
}

TEST(IssueOrder, ARankThatThrowsEndsAllRanksWithItsError) {
  const TextFile file;
  train::Options options = small_options(file);
  options.ranks = 4;
  const train::Text text(options.text, options.seq);
  train::Outcome outcome;
  const Program program = [&](World& world) {
    return train_or_throw(world, options, text, outcome);
  };
  try {
    run_ranks(world_of(options), program);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Unsupported);
    EXPECT_NE(std::string(error.what()).find("rank 1 has had enough"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace coshard::testing
