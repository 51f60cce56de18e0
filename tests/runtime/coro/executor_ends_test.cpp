// An Asio operation that was given up ends when its executor is gone: what it has left is destroyed
// where it ends. And what its handler's executor is before that.
#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/defer.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>

#include <coshard/runtime/coro/asio.h>
#include <coshard/runtime/coro/co_spawn.h>
#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/coro/when_all.h>
#include "runtime/coro/fiber_thread.h"
#include "tests/support/errors.h"

namespace coshard::testing {
namespace {
namespace asio = boost::asio;
using namespace std::chrono_literals;
using AnyExecutor = asio::any_io_executor;
using testing::Boom;

// How an operation runs its last step on its handler's executor.
enum class Way { Dispatch, Post, Defer, Strand, AsksLate, Timer };
constexpr Way kWays[] = {Way::Dispatch, Way::Post, Way::Defer, Way::Strand, Way::AsksLate};

// A thread that computes for as long as the test wants.
struct Computer {
  std::promise<void> go;
  std::shared_future<void> gone = go.get_future().share();
  std::shared_ptr<int> held = std::make_shared<int>(7);  // by whatever is left of an operation
  std::atomic<int> ends{0};                              // last steps that ran
  asio::thread_pool pool{1};

  void finish() {
    go.set_value();
    pool.join();
  }
};

template <class Step>
void run_last_step(Way way, const AnyExecutor& executor, Step step) {
  switch (way) {
    case Way::Post: return asio::post(executor, std::move(step));
    case Way::Defer: return asio::defer(executor, std::move(step));
    case Way::Strand: return asio::dispatch(asio::make_strand(executor), std::move(step));
    case Way::Timer: {
      auto timer = std::make_shared<asio::steady_timer>(executor, 0ms);
      timer->async_wait([timer, step = std::move(step)](const boost::system::error_code&) mutable {
        std::move(step)();
      });
      return;
    }
    default: return asio::dispatch(executor, std::move(step));
  }
}

// A composed operation: it counts as work of its handler's executor until it has ended there.
struct Compute {
  Computer& computer;
  Way way;

  template <class Handler>
  void operator()(Handler handler) {
    auto work = asio::make_work_guard(asio::get_associated_executor(handler));
    auto thread = [this_ = *this, work = std::move(work), held = computer.held,
                   handler = std::move(handler)]() mutable {
      this_.computer.gone.wait();
      AnyExecutor executor = work.get_executor();
      if (this_.way == Way::AsksLate) executor = asio::get_associated_executor(handler);
      auto step = [ends = &this_.computer.ends, held = std::move(held),
                   handler = std::move(handler)]() mutable {
        ++*ends;
        std::move(handler)(*held);
      };
      run_last_step(this_.way, executor, std::move(step));
      work.reset();
    };
    asio::post(computer.pool, std::move(thread));
  }
};

Task<int> compute(Computer& computer, Way way) {
  return asio::async_initiate<const UseTask, void(int)>(Compute{computer, way}, use_task);
}
Task<void> computes(Computer& computer, Way way) {
  Task<int> seven = compute(computer, way);
  const int value = co_await std::move(seven);
  EXPECT_EQ(value, 7);
}
Task<void> throws_boom_soon() {
  Task<void> nap = sleep_for(2ms);
  co_await std::move(nap);
  throw Boom();
}
Task<void> fails_beside(Computer& computer, Way way) {
  Task<void> both = when_all(computes(computer, way), throws_boom_soon());
  co_await std::move(both);
}
Task<void> out_of_time(Computer& computer, Way way) {
  const auto operation = [&](const std::stop_token&) { return computes(computer, way); };
  Task<void> limited = with_deadline(2ms, "compute", operation);
  try {
    co_await std::move(limited);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Timeout) << error.what();
  }
}

// Runs the task that `make` makes on a fiber, whose thread's io_context is that of the executor.
template <class Make>
void run_on_fiber(Make make) {
  std::unique_ptr<Executor> executor;  // outlives the thread
  RankContext* rank = nullptr;
  FiberThread thread;
  thread.on_switch([&](int fiber) { RankContext::exchange(fiber == 0 ? rank : nullptr); });
  thread.spawn([&](Parker& parker) {
    RankContext context(&parker);
    rank = &context;
    RankContext::exchange(rank);
    executor = std::make_unique<Executor>(thread);
    executor->run(make());
    rank = nullptr;
  });
  thread.run();
}

// What the operation holds is gone, and its handler has not run.
void expect_dropped(Computer& computer, Way way) {
  computer.finish();
  EXPECT_EQ(computer.ends, 0) << static_cast<int>(way);
  EXPECT_EQ(computer.held.use_count(), 1) << static_cast<int>(way);
}

TEST(LateOperation, OfATaskThatFailedIsDroppedWhenItsExecutorIsGone) {
  for (const Way way : kWays) {
    Computer computer;
    EXPECT_THROW(sync_wait(fails_beside(computer, way)), Boom);
    expect_dropped(computer, way);
  }
}

TEST(LateOperation, OfADeadlineIsDroppedWhenItsExecutorIsGone) {
  for (const Way way : kWays) {
    Computer computer;
    sync_wait(out_of_time(computer, way));
    expect_dropped(computer, way);
  }
}

TEST(LateOperation, OfAFiberIsDroppedWhenItsThreadIsGone) {
  for (const Way way : kWays) {
    Computer failed, late;
    EXPECT_THROW(run_on_fiber([&] { return fails_beside(failed, way); }), Boom);
    run_on_fiber([&] { return out_of_time(late, way); });
    expect_dropped(failed, way);
    expect_dropped(late, way);
  }
}

TEST(LateOperation, ThatMakesATimerWhenItsExecutorIsGoneIsDropped) {
  Computer computer;
  sync_wait(out_of_time(computer, Way::Timer));
  computer.finish();
  while (computer.held.use_count() > 1) std::this_thread::yield();  // a thread of Asio's own
  EXPECT_EQ(computer.ends, 0);
}

// Counts itself; goes on the thread that made it.
class Frame {
 public:
  explicit Frame(std::atomic<int>& count) : count_(count) { ++count_; }
  ~Frame() {
    --count_;
    EXPECT_EQ(std::this_thread::get_id(), made_);
  }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

 private:
  std::atomic<int>& count_;
  std::thread::id made_ = std::this_thread::get_id();
};
Task<void> computes_in_a_frame(Computer& computer, Way way, std::atomic<int>& frames) {
  const Frame frame(frames);
  Task<void> inner = computes(computer, way);
  co_await std::move(inner);
}
Task<void> leaves_one_beside(Computer& computer, Way way, std::atomic<int>& frames) {
  co_spawn(*Executor::current(), computes_in_a_frame(computer, way, frames), asio::detached);
  Task<void> nap = sleep_for(5ms);
  co_await std::move(nap);
  EXPECT_EQ(frames, 1);
}

TEST(LateOperation, OfATaskBesideTheProgramLeavesTheTaskToGoWithTheExecutor) {
  for (const Way way : kWays) {
    Computer computer;
    std::atomic<int> frames{0};
    sync_wait(leaves_one_beside(computer, way, frames));
    EXPECT_EQ(frames, 0);
    expect_dropped(computer, way);
  }
}

Task<void> goes_on_after(Computer& computer, Way way) {
  Task<void> late = out_of_time(computer, way);
  co_await std::move(late);
  computer.go.set_value();
  while (computer.ends == 0) {
    Task<void> nap = sleep_for(1ms);
    co_await std::move(nap);
  }
}

TEST(LateOperation, EndsAloneWhereTheRankGoesOn) {
  for (const Way way : kWays) {
    Computer own, fiber;
    sync_wait(goes_on_after(own, way));
    run_on_fiber([&] { return goes_on_after(fiber, way); });
    own.pool.join();
    fiber.pool.join();
    EXPECT_EQ(own.held.use_count() + fiber.held.use_count(), 2);
  }
}

TEST(LateOperation, MayEndWhileItsExecutorGoes) {
  for (int round = 0; round < 100; ++round) {
    Computer computer;
    std::thread other([&computer, round] {
      std::this_thread::sleep_for(2ms + round % 10 * 10us);
      computer.go.set_value();
    });
    const Way way = kWays[round % 3];
    try {
      if (round % 2 == 0) sync_wait(fails_beside(computer, way));
      if (round % 2 == 1) run_on_fiber([&] { return fails_beside(computer, way); });
    } catch (const Boom&) {
    }
    other.join();
    computer.pool.join();
    EXPECT_EQ(computer.held.use_count(), 1) << round;
  }
}

TEST(OperationUnderWay, IsWorkOfItsRank) {
  for (const Way way : kWays) {
    Computer own, fiber;
    std::thread other([&] {
      for (Computer* computer : {&own, &fiber}) {
        std::this_thread::sleep_for(5ms);  // its rank sleeps
        computer->go.set_value();
      }
    });
    sync_wait(computes(own, way));
    run_on_fiber([&] { return computes(fiber, way); });
    other.join();
    EXPECT_EQ(own.ends + fiber.ends, 2);
  }
}

// Completes when it has looked at its handler's executor from inside and outside.
struct LookAround {
  template <class Handler>
  void operator()(Handler handler) {
    namespace execution = asio::execution;
    Executor& here = *Executor::current();
    const AnyExecutor executor = asio::get_associated_executor(handler);
    EXPECT_EQ(Executor::current_on(executor), &here);
    EXPECT_EQ(&asio::query(executor, execution::context), &here.io_context());
    const AnyExecutor never = asio::require(executor, execution::blocking.never);
    EXPECT_NE(never, executor);
    EXPECT_EQ(asio::prefer(never, execution::blocking.possibly), executor);
    const AnyExecutor tracked = asio::prefer(executor, execution::outstanding_work.tracked);
    EXPECT_EQ(asio::prefer(tracked, execution::outstanding_work.untracked), executor);
    auto inside = [executor, never, handler = std::move(handler)]() mutable {
      int dispatched = 0;
      auto count = [&dispatched] { ++dispatched; };
      asio::dispatch(executor, count);
      EXPECT_EQ(dispatched, 1);
      auto posted = std::make_shared<bool>(false);
      asio::post(executor, [posted] { *posted = true; });
      never.execute([posted] { EXPECT_TRUE(*posted); });
      EXPECT_FALSE(*posted);
      asio::post(executor, std::move(handler));
    };
    bool ran = false;
    asio::dispatch(executor, [&ran] { ran = true; });  // this thread is in no handler
    asio::dispatch(executor, std::move(inside));
    EXPECT_FALSE(ran);
    here.io_context().poll_one();
    EXPECT_TRUE(ran);
  }
};

Task<void> looks_around() {
  return asio::async_initiate<const UseTask, void()>(LookAround(), use_task);
}

TEST(HandlersExecutor, IsThatOfTheRanksContext) { sync_wait(looks_around()); }

using Tcp = asio::ip::tcp;

Task<void> connect(const Tcp::endpoint& where) {
  Tcp::socket socket(Executor::current()->io_context());
  Task<void> connected = socket.async_connect(where, use_task);
  co_await std::move(connected);
}
Task<void> accept_into(Tcp::acceptor& acceptor, Tcp::socket& socket) {
  Task<void> accepted = acceptor.async_accept(socket, use_task);
  co_await std::move(accepted);
}
Task<void> accept_both_ways() {
  asio::io_context& context = Executor::current()->io_context();
  Tcp::acceptor acceptor(context, {asio::ip::address_v4::loopback(), 0});
  const Tcp::endpoint where = acceptor.local_endpoint();
  Tcp::socket socket(context);
  Task<void> both = when_all(accept_into(acceptor, socket), connect(where));
  co_await std::move(both);
  EXPECT_TRUE(socket.is_open());
  Task<void> other = connect(where);
  co_await std::move(other);
  Task<Tcp::socket> accepted = acceptor.async_accept(use_task);
  const Tcp::socket made = co_await std::move(accepted);
  EXPECT_TRUE(made.is_open());
}

TEST(UseTask, AcceptsIntoASocketAndMakesOne) { sync_wait(accept_both_ways()); }

}  // namespace
}  // namespace coshard::testing
