// A deadline ends its work in time whatever the work awaits: in virtual time to the millisecond,
// and on every host with what a busy machine adds.
#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <vector>

#include "tests/runtime/launch/asio_ranks.h"
#include "tests/support/long_awaits.h"

namespace coshard::testing {
namespace {
using namespace std::chrono_literals;
using testing::bound_all;
using testing::bound_behind_a_sibling;
using testing::bound_then_go_on;
using testing::hour_long_collectives;
using testing::issue_barrier;
using testing::LongAwait;
using testing::meet;
using testing::run_all_bounded;
using testing::simulate_bounded;

// --- what is awaited in any world ---

Task<void> a_part_of_a_collective(World& world) {
  Collective c;
  c.kind = CollectiveKind::AllGather;
  c.extent = 2;
  c.keep_send = world.device()->make_buffer(sizeof(float));
  c.keep_recv = world.device()->make_buffer(2 * sizeof(float));
  c.send = c.keep_send->data();
  c.recv = c.keep_recv->data();
  const Work work = world.communicator()->issue(std::move(c));
  WorkAwaiter part(work.state(), 1 - world.rank());
  co_await part;
}
Task<void> several_works(World& world) {
  const Work first = issue_barrier(world), second = issue_barrier(world);
  WorkAwaiter both(WorkStates{first.state(), second.state()});
  co_await both;
}
Task<void> null_works(World&) {
  for (;;) {
    const Work none;
    co_await none;
  }
}
Task<void> as_they_come(World& world) {
  const Work meeting = issue_barrier(world);
  co_await as_it_comes(meeting);
}
Task<void> as_it_comes_in_a_branch(World& world) {
  std::vector<Task<void>> alone;
  alone.push_back(as_they_come(world));
  Task<void> task = when_all(std::move(alone));
  co_await std::move(task);
}
Task<void> in_order_around_a_sleep(World&) { co_await in_order(sleep_for(1h)); }
Task<void> in_order_as_it_comes(World& world) {
  const Work meeting = issue_barrier(world);
  co_await as_it_comes(meeting);
  co_await in_order(sleep_for(1h));
}
Task<void> in_order_without_an_order(World& world) {
  std::vector<Task<void>> alone;
  alone.push_back(in_order_as_it_comes(world));
  Task<void> task = when_all(std::move(alone));
  co_await std::move(task);
}
Task<void> a_sleep(World&) { return sleep_for(1h); }
Task<void> a_sleep_that_may_be_stopped(World&) {
  const std::stop_source stop;
  Task<void> nap = sleep_for(1h, stop.get_token());
  co_await std::move(nap);
}
Task<void> short_sleeps(World&) {
  for (;;) co_await sleep_for(1ms);
}
Task<void> yields(World&) {
  for (;;) co_await yield();
}
Task<void> siblings(World& world) {
  Task<void> all = when_all(sleep_for(1h), meet(world), yields(world));
  co_await std::move(all);
}
Task<void> siblings_that_settle(World& world) {
  Task<void> all = when_all_settled(sleep_for(1h), meet(world), null_works(world));
  co_await std::move(all);
}
Task<void> fails() {
  co_await yield();
  throw Boom();
}
Task<void> a_sibling_of_one_that_has_failed(World&) {
  Task<void> all = when_all_settled(fails(), sleep_for(1h));
  co_await std::move(all);
}
Task<void> a_longer_deadline(World& world) {
  const auto work = [&world](std::stop_token) { return meet(world); };
  Task<void> task = with_deadline(30min, "the inner one", work);
  co_await std::move(task);
}
Task<void> a_stop_request(World& world) {
  if (world.rank() == 1) co_await sleep_for(1h);  // never asks
  for (;;) co_await world.stop_requested();
}
Task<void> a_message_that_nobody_sends(World& world) {
  const auto cell = world.device()->make_buffer(sizeof(float));
  Collective c;
  c.kind = CollectiveKind::Recv;
  c.root = 1 - world.rank();
  c.extent = 1;
  c.recv = cell->data();
  c.keep_recv = cell;
  const Work message = world.communicator()->issue(std::move(c));
  co_await message;
}

constexpr std::array kAnywhere{
    LongAwait{"ACollective", meet},
    LongAwait{"APartOfACollective", a_part_of_a_collective},
    LongAwait{"SeveralWorks", several_works},
    LongAwait{"NullWorks", null_works},
    LongAwait{"AsItComes", as_it_comes_in_a_branch},
    LongAwait{"InOrder", in_order_around_a_sleep},
    LongAwait{"InOrderWithoutAnOrder", in_order_without_an_order},
    LongAwait{"ASleep", a_sleep},
    LongAwait{"ASleepThatMayBeStopped", a_sleep_that_may_be_stopped},
    LongAwait{"ShortSleeps", short_sleeps},
    LongAwait{"Yields", yields},
    LongAwait{"Siblings", siblings},
    LongAwait{"SiblingsThatSettle", siblings_that_settle},
    LongAwait{"ASiblingOfOneThatHasFailed", a_sibling_of_one_that_has_failed},
    LongAwait{"ALongerDeadline", a_longer_deadline},
    LongAwait{"AStopRequest", a_stop_request, true},
    LongAwait{"AMessageThatNobodySends", a_message_that_nobody_sends},
};

class OfALongAwait : public ::testing::TestWithParam<LongAwait> {};
TEST_P(OfALongAwait, ADeadlineEndsItInTimeAndTheRanksGoOn) {
  simulate_bounded(2, bound_then_go_on, GetParam());
}
TEST_P(OfALongAwait, ADeadlineEndsItBehindASiblingToo) {
  simulate_bounded(2, bound_behind_a_sibling, GetParam());
}
INSTANTIATE_TEST_SUITE_P(Deadlines, OfALongAwait, ::testing::ValuesIn(kAnywhere), testing::name_of);

// --- what is awaited where there is Asio ---

Task<void> a_timer(World& world) {
  asio::steady_timer timer(world.executor().asio_executor(), 1h);
  co_await timer.async_wait(use_task);
}
Task<void> a_timer_in_order(World& world) { co_await in_order(a_timer(world)); }
asio::awaitable<void> waits_as_asio_does() {
  asio::steady_timer timer(co_await asio::this_coro::executor, 1h);
  co_await timer.async_wait(asio::use_awaitable);
}
Task<void> an_asio_awaitable(World& world) {
  Task<void> task =
      asio::co_spawn(world.executor().asio_executor(), waits_as_asio_does(), use_task);
  co_await std::move(task);
}
Task<void> a_task_beside(World& world) {
  Task<void> task = co_spawn(world.executor(), meet(world), use_task);
  co_await std::move(task);
}
Task<void> an_async_wait(World& world) {
  const Work meeting = issue_barrier(world);
  Task<void> task = async_wait(world.executor(), meeting, use_task);
  co_await std::move(task);
}

constexpr std::array kWithAsio{
    LongAwait{"ATimer", a_timer},
    LongAwait{"ATimerInOrder", a_timer_in_order},
    LongAwait{"AnAsioAwaitable", an_asio_awaitable},
    LongAwait{"ATaskBeside", a_task_beside},
    LongAwait{"AnAsyncWait", an_async_wait},
};

std::vector<LongAwait> all_awaits() {
  std::vector<LongAwait> all(kAnywhere.begin(), kAnywhere.end());
  all.insert(all.end(), kWithAsio.begin(), kWithAsio.end());
  return all;
}
WorldOptions stoppable(const std::stop_source& stop) {
  WorldOptions options = hour_long_collectives(2);
  options.stop = stop.get_token();
  return options;
}

TEST(Deadlines, EndAllAtOnceOnThreads) {
  const std::stop_source stop;
  run_all_bounded(stoppable(stop), all_awaits());
}
TEST(Deadlines, EndAllAtOnceOnThreadsWhoseDataAThreadMoves) {
  const std::stop_source stop;
  WorldOptions options = stoppable(stop);
  options.progress_threads = 1;
  run_all_bounded(options, all_awaits());
}
TEST(Deadlines, EndAllAtOnceOnFibers) {
  const std::stop_source stop;
  WorldOptions options = stoppable(stop);
  options.rank_threads = 1;
  run_all_bounded(options, all_awaits());
}
TEST(Deadlines, EndAllAtOnceOnACallersContext) {
  const std::stop_source stop;
  const std::vector<LongAwait> all = all_awaits();
  asio::io_context io;
  const End end = end_on(io, stoppable(stop), [&](World& world) { return bound_all(world, all); });
  EXPECT_FALSE(end.failed) << end;
}

// --- what the library cannot cancel ---

// Resumed by a thread of somebody else's.
struct ResumedLate {
  World& world;
  std::thread& thread;

  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> self) const {
    thread = std::thread([self, place = world.executor().asio_executor()] {
      std::this_thread::sleep_for(300ms);
      asio::post(place, [self] { self.resume(); });
    });
  }
  void await_resume() const noexcept {}
};
Task<void> awaits_a_thread(World& world, std::thread& thread, bool& went_on) {
  ResumedLate late{world, thread};
  co_await late;
  went_on = true;
}
Task<void> bounds_what_a_thread_resumes(World& world) {
  const Clock::time_point begin = Clock::now();
  std::thread thread;
  bool went_on = false;
  End end;
  const auto work = [&](const std::stop_token&) { return awaits_a_thread(world, thread, went_on); };
  Task<void> task = with_deadline(100ms, "a thread", work);
  Task<void> kept = keep_end(std::move(task), end);
  co_await std::move(kept);
  thread.join();
  EXPECT_TRUE(end.is(ErrorKind::Timeout)) << end;
  EXPECT_TRUE(end.names("a thread: not finished after 100 ms")) << end;
  EXPECT_GE(Clock::now() - begin, 300ms);  // whoever resumes it still has its handle
  EXPECT_FALSE(went_on);
  Task<void> after = sums(world, 3, 1);
  co_await std::move(after);
}
TEST(Deadlines, OfAForeignAwaitableHoldWhenItIsResumed) {
  run_ranks(quick_options(2), bounds_what_a_thread_resumes);
  const End end = end_on_one_thread(2, bounds_what_a_thread_resumes);
  EXPECT_FALSE(end.failed) << end;
}

}  // namespace
}  // namespace coshard::testing
