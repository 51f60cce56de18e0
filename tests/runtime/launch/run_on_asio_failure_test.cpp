// Ranks on a caller's context that fail, or whose context goes.
#include "tests/runtime/launch/asio_ranks.h"

#include <functional>
#include <memory>
#include <optional>

#include "runtime/launch/rank_directory.h"

namespace coshard::testing {
namespace {
using namespace std::chrono_literals;

// Of which other processes have ranks that leave later, or fail.
std::atomic<bool> others_have_left{false};
std::function<void(const std::string&)> failed_elsewhere;

class DirectoryWithOthers final : public RankDirectory {
 public:
  explicit DirectoryWithOthers(std::unique_ptr<RankDirectory> here) : here_(std::move(here)) {}
  int size() const override { return here_->size(); }
  const std::vector<int>& here() const override { return here_->here(); }
  ThreadGroup* thread_group() override { return here_->thread_group(); }
  std::shared_ptr<Communicator> control(int rank) override { return here_->control(rank); }
  void fail(const std::string& cause) override { here_->fail(cause); }
  void on_failure(std::function<void(const std::string&)> told) override {
    failed_elsewhere = std::move(told);
  }
  bool reports_failure() override { return true; }
  void count_in(DeadlockDetector& deadlock_detector) override {
    here_->count_in(deadlock_detector);
  }
  void leave(int rank) override { here_->leave(rank); }
  void end() override {}
  bool over() override { return others_have_left; }
  bool alive(int rank) const override { return here_->alive(rank); }
  std::string last_seen(int rank) const override { return here_->last_seen(rank); }

 private:
  std::unique_ptr<RankDirectory> here_;
};

Task<void> meets(World& world) {
  const Work meet = barrier(world);
  co_await meet;
}

TEST(RunOnAsio, WaitsForRanksElsewhereWithoutTheContextAndGetsTheirErrors) {
  use_directories([](const WorldOptions& options) -> std::unique_ptr<RankDirectory> {
    return std::make_unique<DirectoryWithOthers>(make_thread_directory(options));
  });
  for (const bool fails : {false, true}) {
    others_have_left = false;
    asio::io_context io;
    std::optional<std::exception_ptr> end;
    run_ranks(quick_options(2), meets, io.get_executor(),
              [&](const std::exception_ptr& error) { end = error; });
    io.run_for(50ms);
    EXPECT_FALSE(end.has_value()) << "it has not waited";
    bool free = false;
    asio::post(io, [&] { free = true; });
    io.run_for(20ms);
    EXPECT_TRUE(free);
    if (fails) failed_elsewhere("rank 2 ended with: disk full");
    others_have_left = true;
    io.run();
    ASSERT_TRUE(end.has_value());
    EXPECT_EQ(*end != nullptr, fails);
    if (fails) {
      EXPECT_TRUE(end_of(*end).names("disk full"));
    }
  }
  use_directories(nullptr);
}

using Waits = Task<void> (*)(World& world);
Task<void> waits_for_a_peer(World& world) {
  const Work meet = barrier(world);
  co_await meet;
}
Task<void> waits_for_time(World&) { co_await sleep_for(50s); }
Task<void> waits_for_a_timer(World& world) {
  asio::steady_timer timer(world.executor().asio_executor(), 50s);
  co_await timer.async_wait(use_task);
}
Task<void> rank_1_throws(World& world, Waits waits, std::vector<End>& ends) {
  if (world.rank() == 1) {
    co_await sleep_for(5ms);
    throw Boom();
  }
  Task<void> noted = note_end(waits(world), ends[static_cast<std::size_t>(world.rank())]);
  co_await std::move(noted);
}

TEST(RunOnAsio, AFailureEndsThePeersAndIsWhatTheTokenGets) {
  for (const Waits waits : {waits_for_a_peer, waits_for_time, waits_for_a_timer}) {
    std::vector<End> ends(3);
    const auto begin = Clock::now();
    const End end =
        end_on_one_thread(3, [&](World& world) { return rank_1_throws(world, waits, ends); });
    EXPECT_EQ(end.text, "boom");
    EXPECT_LT(Clock::now() - begin, 1s);
    for (const std::size_t rank : {0U, 2U}) EXPECT_TRUE(ends[rank].names("boom")) << ends[rank];
  }
}

Task<void> never_comes_back(World& world, Counts& counts) {
  const Counted local(counts);
  if (world.rank() == 0) throw Boom();
  co_await std::suspend_always{};
}
TEST(RunOnAsio, ARankThatNobodyWillResumeEndsWithItsPeers) {
  Counts counts;
  const End end =
      end_on_one_thread(2, [&](World& world) { return never_comes_back(world, counts); });
  EXPECT_EQ(end.text, "boom");
  EXPECT_EQ(counts.alive(), 0);
}

Task<void> leaves_what_it_must_finish(World& world, bool fails) {
  if (world.rank() == 0) world.must_finish("left it");
  CS_REQUIRE(!fails || world.rank() > 0, "no");
  co_return;
}
TEST(RunOnAsio, AProgramMustFinishWhatItSaysAndAnErrorNamesWhatIsLeft) {
  for (const bool fails : {false, true}) {
    const End end = end_on_one_thread(
        2, [&](World& world) { return leaves_what_it_must_finish(world, fails); });
    EXPECT_EQ(end.text, fails ? "rank 0: no; left it" : "rank 0: left it");
  }
}

Task<void> suspends_for_good(World&) { co_await std::suspend_always{}; }
TEST(RunOnAsio, ATaskThatNobodyWillCompleteIsAnError) {
  const End end = end_on_one_thread(2, suspends_for_good);
  EXPECT_TRUE(end.is(ErrorKind::BadInput)) << end;
  EXPECT_TRUE(end.names("nothing will complete")) << end;
}

Task<void> late_for_the_timeout(World& world) {
  if (world.rank() == 1) co_await sleep_for(2s);
  const Work meet = barrier(world);
  co_await meet;
}
TEST(RunOnAsio, TheDeadlineOfACollectiveIsKept) {
  asio::io_context io;
  WorldOptions options = quick_options(2);
  options.timeout = 100ms;
  const auto begin = Clock::now();
  const End end = end_on(io, options, late_for_the_timeout);
  EXPECT_TRUE(end.is(ErrorKind::Timeout)) << end;
  EXPECT_TRUE(end.names("missing: 1")) << end;
  EXPECT_LT(Clock::now() - begin, 1s);
}

Task<void> nothing(World&) { co_return; }
TEST(RunOnAsio, BadInputIsRefusedAtOnce) {
  asio::io_context io;
  WorldOptions options = quick_options(-1);
  EXPECT_THROW(run_ranks(options, nothing, io.get_executor(), asio::detached), Error);
  options = quick_options(2);
  const std::vector<asio::any_io_executor> none;
  EXPECT_THROW(run_ranks(options, nothing, none, asio::detached), Error);
  options.rank_threads = 1;
  EXPECT_THROW(run_ranks(options, nothing, io.get_executor(), asio::detached), Error);
}

// --- hooks ---

Task<void> rank_1_throws_in_a_module(World& world) {
  if (world.rank() == 0) co_return co_await waits_for_time(world);
  try {
    throw Boom();
  } catch (...) {
    world.module_left("layers.0", std::current_exception());
    throw;
  }
}
TEST(RunOnAsio, AFailureIsToldOnceAndBeforeTheToken) {
  asio::io_context io;
  std::vector<std::string> told;
  WorldOptions options = quick_options(2);
  options.on_failure = [&](const Failure& failure) { told.push_back(failure.line()); };
  std::size_t before_the_token = 0;
  run_ranks(options, rank_1_throws_in_a_module, io.get_executor(),
            [&](const std::exception_ptr&) { before_the_token = told.size(); });
  io.run();
  EXPECT_EQ(told, std::vector<std::string>{"rank 1, layers.0: boom"});
  EXPECT_EQ(before_the_token, 1U);
}

Task<void> takes_long(std::stop_token) { co_await std::suspend_always{}; }
Task<void> throws() {
  co_await yield();
  throw Boom();
}
Task<void> a_sibling_never_ends(World& world) {
  if (world.rank() == 0) co_return co_await waits_for_time(world);
  Task<void> both = when_all(takes_long({}), throws());
  co_await std::move(both);
}
TEST(RunOnAsio, AFailureWhoseSiblingsNobodyWillResumeIsTheError) {
  const auto begin = Clock::now();
  const End end = end_on_one_thread(2, a_sibling_never_ends);
  EXPECT_EQ(end.text, "boom");
  EXPECT_LT(Clock::now() - begin, 5s);
}

Task<void> computes_after_a_failure(World& world, const std::atomic<bool>& told) {
  if (world.rank() == 1) throw Boom();
  const auto end = Clock::now() + 30s;  // nobody tells of it
  while (!told && Clock::now() < end) std::this_thread::sleep_for(1ms);
  co_return;
}
TEST(RunOnAsio, WhoDoesNotEndIsNamed) {
  asio::io_context first, second;
  std::vector<int> named;
  std::atomic<bool> told{false};
  WorldOptions options = quick_options(2);
  options.grace = 10ms;  // at its end, too, all are named
  options.on_still_running = [&](const StillRunning& news) {
    named = news.ranks;
    told = true;
  };
  std::exception_ptr got;
  run_ranks(
      options, [&](World& world) { return computes_after_a_failure(world, told); },
      std::vector<asio::any_io_executor>{first.get_executor(), second.get_executor()},
      [&](const std::exception_ptr& error) { got = error; });
  std::thread other([&] { second.run(); });
  std::thread more([&] { first.run(); });
  first.run();
  other.join();
  more.join();
  EXPECT_EQ(named, std::vector<int>{0});
  EXPECT_EQ(text_of(got), "boom");
}

// --- destruction ---

Task<void> holds_and_waits(World& world, Counts& counts, Waits waits) {
  const Counted local(counts);
  if (waits != waits_for_a_peer || world.rank() == 0) {
    Task<void> task = waits(world);
    const auto work = [&](std::stop_token) { return std::move(task); };
    Task<void> bounded = with_deadline(1h, "a long time", work);
    Task<void> beside = waits_for_time(world);
    Task<void> both = when_all(std::move(bounded), std::move(beside));
    co_await std::move(both);
  }
  co_await sleep_for(50s);
}

TEST(RunOnAsio, RanksAreDestroyedWithTheContextThatTheyWaitOn) {
  for (const Waits waits : {waits_for_a_peer, waits_for_time, waits_for_a_timer}) {
    Counts counts;
    auto held = std::make_shared<int>(1);
    {
      asio::io_context io;
      run_ranks(
          quick_options(3), [&](World& world) { return holds_and_waits(world, counts, waits); },
          io.get_executor(), [held](const std::exception_ptr&) { FAIL(); });
      io.run_for(10ms);
      EXPECT_EQ(counts.alive(), 3);
    }
    EXPECT_EQ(counts.alive(), 0);
    EXPECT_EQ(held.use_count(), 1);
  }
}

TEST(RunOnAsio, RanksAreDestroyedWithTheContextThatNeverRan) {
  auto held = std::make_shared<int>(1);
  {
    asio::io_context io;
    run_ranks(
        quick_options(2), [held](World&) -> Task<void> { co_return; }, io.get_executor(),
        asio::detached);
  }
  EXPECT_EQ(held.use_count(), 1);
}

TEST(RunOnAsio, WhenOneOfTwoContextsIsDestroyedTheRanksOfTheOtherFail) {
  asio::io_context second;
  std::vector<End> ends(2);
  bool called = false;
  {
    asio::io_context first;
    const std::vector<asio::any_io_executor> both{first.get_executor(), second.get_executor()};
    run_ranks(
        quick_options(2),
        [&](World& world) {
          return note_end(waits_for_time(world), ends[static_cast<std::size_t>(world.rank())]);
        },
        both, [&](const std::exception_ptr&) { called = true; });
    first.run_for(5ms);
    second.run_for(5ms);
  }
  second.restart();
  second.run_for(100ms);
  EXPECT_TRUE(ends[1].names("rank 0 was destroyed with its io_context")) << ends[1];
  EXPECT_FALSE(called);
}

TEST(RunOnAsio, WhenTheContextOfAPeerIsDestroyedTheTokenHearsOfIt) {
  asio::io_context first;
  std::exception_ptr got;
  {
    asio::io_context second;
    const std::vector<asio::any_io_executor> both{first.get_executor(), second.get_executor()};
    run_ranks(quick_options(2), waits_for_time, both,
              [&](const std::exception_ptr& error) { got = error; });
    first.run_for(5ms);
    second.run_for(5ms);
  }
  first.run_for(5s);
  ASSERT_TRUE(got);
  EXPECT_EQ(text_of(got), "rank 1 was destroyed with its io_context");
}

TEST(RunOnAsio, LinkAndProgressThreadsAreThereToo) {
  for (const int helpers : {0, 1}) {
    asio::io_context io;
    WorldOptions options = quick_options(2);
    options.link = Link{20'000, 1'000};
    options.progress_threads = helpers;
    const auto begin = Clock::now();
    const End end = end_on(io, options, [](World& world) { return sums(world, 3, 2); });
    EXPECT_EQ(end.text, "");
    EXPECT_GE(Clock::now() - begin, 60ms);
  }
}

}  // namespace
}  // namespace coshard::testing
