// What users of a world do to it: they spawn and leave, ask to stop, cancel many, and serve; on
// threads, on fibers, on a context of their own, and in a simulation.
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <functional>
#include <string>

#include <coshard/runtime/launch/simulate.h>
#include "tests/runtime/launch/asio_ranks.h"

namespace coshard::testing {
namespace {
using namespace std::chrono_literals;
using asio::ip::tcp;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}
WorldOptions sharing_threads(int ranks, int threads) {
  WorldOptions options = quick_options(ranks);
  options.rank_threads = threads;
  options.timeout = 10s;  // none of them is late on purpose
  return options;
}
WorldOptions with_helpers(int ranks, int helpers) {
  WorldOptions options = quick_options(ranks);
  options.progress_threads = helpers;
  return options;
}
// The program wherever ranks can live.
void run_everywhere(int ranks, const Program& program) {
  EXPECT_NO_THROW(run_ranks(quick_options(ranks), program));
  EXPECT_NO_THROW(run_ranks(sharing_threads(ranks, 2), program));
  EXPECT_NO_THROW(run_ranks(with_helpers(ranks, 1), program));
  const End end = end_on_one_thread(ranks, program);
  EXPECT_FALSE(end.failed) << end;
  for (std::uint64_t seed = 0; seed < 5; ++seed)
    EXPECT_NO_THROW(simulate(quick_options(ranks), program, seed)) << seed;
}

// --- many siblings, one of which fails ---

constexpr int kSiblings = 300, kFails = 150;
Task<void> barriers_twice(World& world, int position) {
  const Work first = barrier(world);
  co_await first;
  if (position == kFails) throw position;
  const Work second = barrier(world);
  co_await second;
}
Task<void> cancels_many_barriers(World& world) {
  for (int round = 0; round < 5; ++round) {
    std::vector<Task<void>> tasks;
    for (int i = 0; i < kSiblings; ++i) tasks.push_back(barriers_twice(world, i));
    Task<void> all = when_all(std::move(tasks));
    int caught = -1;
    try {
      co_await std::move(all);
    } catch (int position) {
      caught = position;
    }
    EXPECT_EQ(caught, kFails);
    Task<void> after = sums(world, 3, 1);
    co_await std::move(after);
  }
}
TEST(Cancelled, HundredsOfSiblingsAtTheSamePlaceOnAllRanksAndTheProgramGoesOn) {
  run_everywhere(3, cancels_many_barriers);
}

// --- a server that takes what comes ---

Task<void> serve(World& world, int client, int requests) {
  for (int i = 0; i < requests; ++i) {
    float value = 0;
    const Work request = issue_message(world, CollectiveKind::Recv, client, value);
    co_await as_it_comes(request);
    EXPECT_EQ(value, static_cast<float>(client * 100 + i));
    value *= 2;
    const Work answer = issue_message(world, CollectiveKind::Send, client, value);
    co_await as_it_comes(answer);
  }
}
Task<void> ask(World& world, int requests) {
  for (int i = 0; i < requests; ++i) {
    co_await sleep_for(std::chrono::microseconds(world.rank() * 300));
    float value = static_cast<float>(world.rank() * 100 + i), answer = 0;
    const Work request = issue_message(world, CollectiveKind::Send, 0, value);
    co_await request;
    const Work answered = issue_message(world, CollectiveKind::Recv, 0, answer);
    co_await answered;
    EXPECT_EQ(answer, 2 * value);
  }
}
Task<void> serve_all(World& world) {
  constexpr int kRequests = 8;
  if (world.rank() == 0) {
    std::vector<Task<void>> clients;
    for (int r = 1; r < world.size(); ++r) clients.push_back(serve(world, r, kRequests));
    Task<void> all = when_all(std::move(clients));
    co_await std::move(all);
  } else {
    Task<void> asks = ask(world, kRequests);
    co_await std::move(asks);
  }
  Task<void> together = sums(world, 3, 1);  // whose order as_it_comes has not spoilt
  co_await std::move(together);
}
TEST(AsItComes, AServerAndItsClientsAddUpAfterwards) { run_everywhere(4, serve_all); }

// --- sockets between ranks, in order and not ---

Task<void> answer_one(tcp::acceptor& acceptor) {
  Task<tcp::socket> accepting = acceptor.async_accept(use_task);
  tcp::socket socket = co_await std::move(accepting);
  char byte = 0;
  auto reading = asio::async_read(socket, asio::buffer(&byte, 1), use_task);
  co_await std::move(reading);
  EXPECT_EQ(byte, '?');
}
Task<void> call_one(World& world, int port) {
  tcp::socket socket(world.executor().asio_executor());
  const tcp::endpoint peer(asio::ip::address_v4::loopback(), static_cast<unsigned short>(port));
  auto connecting = socket.async_connect(peer, use_task);
  co_await std::move(connecting);
  auto writing = asio::async_write(socket, asio::buffer("?", 1), use_task);
  co_await std::move(writing);
}
Task<void> call_in_order(World& world, int port) {
  auto calling = in_order(call_one(world, port));
  co_await std::move(calling);
}
Task<void> ring(World& world, std::vector<std::atomic<int>>& ports) {
  const auto me = static_cast<std::size_t>(world.rank());
  tcp::acceptor acceptor(world.executor().asio_executor(),
                         tcp::endpoint(asio::ip::address_v4::loopback(), 0));
  ports[me] = acceptor.local_endpoint().port();
  const Work open = barrier(world);
  co_await open;
  const int port = ports[(me + 1) % ports.size()];
  for (int round = 0; round < 2; ++round) {
    Task<void> plain = when_all(answer_one(acceptor), call_one(world, port), sums(world, 5, 1));
    co_await std::move(plain);
    Task<void> ordered =
        when_all(answer_one(acceptor), call_in_order(world, port), sums(world, 5, 2));
    co_await std::move(ordered);
  }
}
TEST(Sockets, RanksOfFewThreadsCallEachOtherInARingBesideTheirSums) {
  for (const WorldOptions& options : {quick_options(3), sharing_threads(32, 2)}) {
    std::vector<std::atomic<int>> ports(static_cast<std::size_t>(options.ranks));
    EXPECT_NO_THROW(run_ranks(options, [&](World& world) { return ring(world, ports); }));
  }
}

// --- stopping ---

Task<void> asks_until_cancelled(World& world) {
  for (;;) {
    Task<bool> asked = world.stop_requested();
    if (co_await std::move(asked)) co_return;
  }
}
Task<void> fails_after(World& world, int count) {
  Task<void> adding = sums(world, count, 1);
  co_await std::move(adding);
  throw Boom();
}
Task<void> asks_in_a_branch(World& world) {
  for (int round = 0; round < 3; ++round) {
    Task<void> both = when_all(asks_until_cancelled(world), fails_after(world, 5));
    EXPECT_THROW(co_await std::move(both), Boom);
  }
  Task<bool> asked = world.stop_requested();
  EXPECT_FALSE(co_await std::move(asked));
}
TEST(StopRequest, MayBeAskedInABranchThatIsCancelledAndAgainAfterwards) {
  std::stop_source source;
  for (WorldOptions options : {quick_options(3), sharing_threads(6, 2)}) {
    options.stop = source.get_token();
    EXPECT_NO_THROW(run_ranks(options, asks_in_a_branch));
  }
}

// --- what a caller's context keeps of a world on threads ---

Task<void> leaves_or_naps(World& world, std::atomic<int>& rested) {
  if (world.rank() == 1) fail(ErrorKind::Cancelled, "has enough");
  co_await sleep_for(100ms);
  ++rested;
}
TEST(RunOnAsio, ARankThatEndsWithCancelledEndsNobodyElse) {
  std::atomic<int> rested = 0;
  end_on_one_thread(3, [&](World& world) { return leaves_or_naps(world, rested); });
  EXPECT_EQ(rested, 2);
}

// A cancelled sibling that goes on until the peer has ended, or far too long.
Task<void> never_minds(const std::atomic<bool>& peer_ended, bool& gave_up) {
  const Clock::time_point begin = Clock::now();
  while (!peer_ended && !gave_up) {
    gave_up = ms_since(begin) > 30'000;
    try {
      co_await sleep_for(1ms);
    } catch (const Error&) {
      std::this_thread::sleep_for(1ms);
    }
  }
}
Task<void> boom_soon() {
  co_await sleep_for(10ms);
  throw Boom();
}
Task<void> beside_one_that_does_not_end(World& world, std::atomic<bool>& peer_ended,
                                        bool& gave_up) {
  if (world.rank() == 1) {  // not on the first executor, which tells of it
    Task<void> both = when_all(never_minds(peer_ended, gave_up), boom_soon());
    co_await std::move(both);
  }
  try {
    co_await sleep_for(1h);
  } catch (const Error&) {
    peer_ended = true;
    throw;
  }
}
TEST(RunOnAsio, ASiblingThatDoesNotEndKeepsTheFailureFromItsPeersForASecond) {
  std::atomic<bool> peer_ended{false};
  bool gave_up = false;
  asio::io_context one, other;
  const std::vector<asio::any_io_executor> both{one.get_executor(), other.get_executor()};
  std::future<void> future = run_ranks(
      quick_options(2),
      [&](World& world) { return beside_one_that_does_not_end(world, peer_ended, gave_up); }, both,
      asio::use_future);
  std::thread thread([&] { one.run(); });
  other.run();
  thread.join();
  EXPECT_THROW(future.get(), Boom);
  EXPECT_TRUE(peer_ended);
  EXPECT_FALSE(gave_up);
}

// --- what is left over when a rank ends ---

struct UsesItsWorld {
  explicit UsesItsWorld(World& of) : world(of) { ++alive; }
  ~UsesItsWorld() {
    EXPECT_EQ(World::current(), &world);
    --alive;
  }
  World& world;
  inline static std::atomic<int> alive{0};
};
Task<void> sleeps_long(World& world) {
  const UsesItsWorld here(world);
  co_await sleep_for(1h);
}
Task<void> spawns_and_ends(World& world) {
  co_spawn(world.executor(), sleeps_long(world), [](const std::exception_ptr&) { FAIL(); });
  for (int i = 0; i < 3; ++i) {
    const Work meet = barrier(world);
    co_await meet;
    co_await sleep_for(1ms);
  }
}
TEST(Spawned, WhatHasNotEndedGoesWithItsRankOnThreads) {
  run_ranks(quick_options(2), spawns_and_ends);
  EXPECT_EQ(UsesItsWorld::alive, 0);
}
TEST(Spawned, WhatHasNotEndedGoesWithItsRankOnAFiber) {
  run_ranks(sharing_threads(4, 2), spawns_and_ends);
  EXPECT_EQ(UsesItsWorld::alive, 0);
}
TEST(Spawned, WhatHasNotEndedGoesWithItsRankOnACallersContext) {
  const Clock::time_point begin = Clock::now();
  const End end = end_on_one_thread(2, spawns_and_ends);
  EXPECT_FALSE(end.failed) << end;
  EXPECT_EQ(UsesItsWorld::alive, 0);
  EXPECT_LT(ms_since(begin), 60'000);
}

// An operation as Asio asks for it: it holds work of the executor on which its handler will run.
template <class Token>
auto async_compute(asio::thread_pool& pool, std::chrono::milliseconds time, Token&& token) {
  return asio::async_initiate<Token, void(int)>(
      [time](auto handler, asio::thread_pool* on) {
        auto work = asio::make_work_guard(asio::get_associated_executor(handler));
        asio::post(*on, [time, handler = std::move(handler), work = std::move(work)]() mutable {
          std::this_thread::sleep_for(time);
          asio::dispatch(work.get_executor(),
                         [handler = std::move(handler)]() mutable { std::move(handler)(7); });
        });
      },
      token, &pool);
}
Task<void> computes_elsewhere(World& world, asio::thread_pool& pool) {
  if (world.rank() == 0) {
    co_await sleep_for(5ms);
    throw Boom();
  }
  Task<int> computing = async_compute(pool, 300ms, use_task);
  EXPECT_EQ(co_await std::move(computing), 7);
}
TEST(Peers, WhatTheyLeftToAThreadPoolMayCompleteWhenTheRunIsOver) {
  for (const WorldOptions& options : {quick_options(3), sharing_threads(3, 2)}) {
    asio::thread_pool pool(2);
    const Program program = [&](World& world) { return computes_elsewhere(world, pool); };
    EXPECT_THROW(run_ranks(options, program), Boom);
    pool.join();
  }
}

}  // namespace
}  // namespace coshard::testing
