// A thread for each rank: named, alone, and told of once.
#include <gtest/gtest.h>

#include <pthread.h>
#include <array>
#include <atomic>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <coshard/runtime/coro/executor.h>
#include "runtime/comm/local/thread_group.h"
#include "runtime/launch/rank_host.h"

namespace coshard {
namespace {

TEST(OwnThreadsOf, EachRankHasAThreadOfItsName) {
  ThreadGroup thread_group(3);
  std::mutex mutex;
  std::set<std::thread::id> threads;
  std::set<std::string> names;
  std::vector<int> ended;
  bool watched = false;
  RankProgram program;
  program.run = [&](int rank, Executor& executor) {
    char name[32];
    pthread_getname_np(pthread_self(), name, sizeof name);
    const std::scoped_lock lock(mutex);
    threads.insert(std::this_thread::get_id());
    names.insert(name);
    EXPECT_EQ(RankContext::current().executor, nullptr);
    EXPECT_NE(&executor, nullptr);
    EXPECT_LT(rank, 3);
  };
  program.failed = [](int, const std::exception_ptr&) { ADD_FAILURE(); };
  program.ended = [&](int rank) {
    const std::scoped_lock lock(mutex);
    ended.push_back(rank);
  };
  program.watch = [&] { watched = true; };
  program.waiter_state = [](int) { return nullptr; };
  const std::array all = {0, 1, 2};
  own_threads()->run(all, thread_group, program);
  EXPECT_EQ(threads.size(), 3U);
  EXPECT_EQ(threads.count(std::this_thread::get_id()), 0U);
  EXPECT_EQ(names, (std::set<std::string>{"rank 0", "rank 1", "rank 2"}));
  EXPECT_EQ(ended.size(), 3U);
  EXPECT_TRUE(watched);
}

TEST(OwnThreadsOf, AreJoinedWhateverTheWatchThrowsAndWhateverARankThrowsIsTold) {
  ThreadGroup thread_group(3);
  std::atomic<int> told{0}, ended{0};
  RankProgram program;
  program.run = [](int, Executor&) { throw std::bad_alloc(); };
  program.failed = [&](int, const std::exception_ptr&) { ++told; };
  program.ended = [&](int) { ++ended; };
  program.watch = [] { throw std::bad_alloc(); };
  program.waiter_state = [](int) { return nullptr; };
  const std::array all = {0, 1, 2};
  EXPECT_THROW(own_threads()->run(all, thread_group, program), std::bad_alloc);
  EXPECT_EQ(told, 3);
  EXPECT_EQ(ended, 3);
}

}  // namespace
}  // namespace coshard
