// Threads that move what is in flight while ranks compute.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <coshard/runtime/coro/when_all.h>
#include <coshard/runtime/launch/world.h>

namespace coshard::testing {
namespace {

constexpr std::int64_t kManyElements = 4 << 20;  // 16 MiB

WorldOptions helped(int ranks, int progress_threads) {
  WorldOptions options;
  options.ranks = ranks;
  options.threads = 1;
  options.progress_threads = progress_threads;
  return options;
}

std::shared_ptr<Buffer> buffer_of(World& world, std::int64_t elements, float value) {
  auto buffer = world.device()->make_buffer(static_cast<std::size_t>(elements) * sizeof(float));
  std::fill_n(static_cast<float*>(buffer->data()), elements, value);
  return buffer;
}
float at(const std::shared_ptr<Buffer>& buffer, std::int64_t index) {
  return static_cast<const float*>(buffer->data())[index];
}

// An all_reduce in place. The library keeps the buffer until the collective is over on all ranks.
Collective sum_of(const std::shared_ptr<Buffer>& data, std::int64_t elements) {
  Collective c;
  c.kind = CollectiveKind::AllReduce;
  c.extent = elements;
  c.send = c.recv = data->data();
  c.keep_send = c.keep_recv = data;
  return c;
}

// Computes until nobody but the caller holds the buffer; looks at nothing else.
void compute_until_let_go(const std::shared_ptr<Buffer>& buffer) {
  volatile double x = 1;
  while (buffer.use_count() > 1) x = x * 1.0000001;
}

struct Times final : Observer {
  std::int64_t done_ns = 0, wait_begin_ns = 0;
  void ready(const CommEvent&, std::int64_t wait_begin, std::int64_t done, std::int64_t) override {
    wait_begin_ns = wait_begin;
    done_ns = done;
  }
};

TEST(ProgressThreads, AnAllReduceIsCompleteBeforeTheRanksWaitAlthoughAllCompute) {
  const auto program = [](World& world) -> Task<void> {
    Times watch;
    world.add_observer(&watch);
    const auto data = buffer_of(world, kManyElements, static_cast<float>(world.rank() + 1));
    const Work work = world.communicator()->issue(sum_of(data, kManyElements));
    compute_until_let_go(data);
    const std::int64_t computed_ns = now_ns();
    co_await work;
    EXPECT_GT(watch.done_ns, 0);
    EXPECT_LE(watch.done_ns, computed_ns);
    EXPECT_LE(watch.done_ns, watch.wait_begin_ns);
    EXPECT_EQ(at(data, 0), 3);
    EXPECT_EQ(at(data, kManyElements - 1), 3);
    world.remove_observer(&watch);
  };
  run_ranks(helped(2, 1), program);
}

TEST(ProgressThreads, WhatHangsOnACollectiveIsDoneTooAndInOrder) {
  const auto program = [](World& world) -> Task<void> {
    std::vector<int> all(static_cast<std::size_t>(world.size()));
    std::iota(all.begin(), all.end(), 0);
    const auto other = world.communicator()->subgroup(all, "dp");
    const auto data = buffer_of(world, kManyElements, 1.0F);
    Collective second = sum_of(data, kManyElements);
    const Work first = world.communicator()->issue(sum_of(data, kManyElements));
    second.after = first.state();
    const Work last = other->issue(std::move(second));
    compute_until_let_go(data);
    co_await last;
    EXPECT_EQ(at(data, kManyElements / 2), 9);
  };
  run_ranks(helped(3, 2), program);
}

TEST(ProgressThreads, AChainWaitsForItsEmulatedLink) {
  WorldOptions options = helped(2, 1);
  options.link = Link{2'000, 100'000};
  const auto program = [](World& world) -> Task<void> {
    const std::vector<int> all{0, 1};
    const auto other = world.communicator()->subgroup(all, "dp");
    const auto data = buffer_of(world, kManyElements, 1.0F);
    const std::int64_t begin = now_ns();
    Collective second = sum_of(data, kManyElements);
    const Work first = world.communicator()->issue(sum_of(data, kManyElements));
    second.after = first.state();
    const Work last = other->issue(std::move(second));
    compute_until_let_go(data);
    EXPECT_GE(now_ns() - begin, 2'000'000);
    co_await last;
    EXPECT_GE(now_ns() - begin, 4'000'000);
    EXPECT_EQ(at(data, 0), 4);
  };
  run_ranks(options, program);
}

TEST(ProgressThreads, AMessageIsDelivered) {
  const auto program = [](World& world) -> Task<void> {
    const bool sends = world.rank() == 0;
    const auto data = buffer_of(world, kManyElements, sends ? 7.0F : 0.0F);
    Collective c;
    c.kind = sends ? CollectiveKind::Send : CollectiveKind::Recv;
    c.root = sends ? 1 : 0;
    c.extent = kManyElements;
    if (sends) c.send = data->data();
    if (!sends) c.recv = data->data();
    (sends ? c.keep_send : c.keep_recv) = data;
    const Work work = world.communicator()->issue(std::move(c));
    compute_until_let_go(data);
    co_await work;
    EXPECT_EQ(at(data, kManyElements - 1), 7);
  };
  run_ranks(helped(2, 1), program);
}

Task<void> many_sums(World& world, Communicator& communicator, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    const std::int64_t elements = round % 3 == 0 ? 200'000 : 100;
    const auto data = buffer_of(world, elements, static_cast<float>(world.rank()));
    const Work work = communicator.issue(sum_of(data, elements));
    co_await work;
    EXPECT_EQ(at(data, elements - 1), 6);
  }
}

TEST(ProgressThreads, ManyCollectivesOfSeveralGroupsGiveTheSameNumbers) {
  const auto program = [](World& world) -> Task<void> {
    const std::vector<int> all{0, 1, 2, 3};
    const auto other = world.communicator()->subgroup(all, "dp");
    Task<void> both =
        when_all(many_sums(world, *world.communicator(), 60), many_sums(world, *other, 60));
    co_await std::move(both);
  };
  run_ranks(helped(4, 3), program);
}

TEST(ProgressThreads, AProgramThatFailsWithMuchInFlightEnds) {
  const auto program = [](World& world) -> Task<void> {
    std::vector<Work> works;
    for (int i = 0; i < 20; ++i) {
      const auto data = buffer_of(world, 200'000, 1.0F);
      works.push_back(world.communicator()->issue(sum_of(data, 200'000)));
    }
    if (world.rank() == 1) throw std::runtime_error("boom");
    for (const Work& work : works) co_await work;
  };
  for (int round = 0; round < 10; ++round)
    EXPECT_THROW(run_ranks(helped(3, 2), program), std::runtime_error);
}

std::multiset<std::string> threads_here() {
  std::multiset<std::string> names;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "comm");
    std::string name;
    std::getline(file, name);
    names.insert(name);
  }
  return names;
}

TEST(ProgressThreads, AreNamedAndThereOnlyWhenAskedForAndWhileTheRanksRun) {
  for (const int asked : {0, 2}) {
    const auto program = [asked](World&) -> Task<void> {
      const auto wanted = static_cast<std::size_t>(asked / 2);
      const auto named = [](const char* name) { return threads_here().count(name); };
      while (named("progress 0") < wanted || named("progress 1") < wanted)
        std::this_thread::yield();  // a thread names itself, which may take it a moment
      EXPECT_EQ(named("progress 0"), wanted);
      co_return;
    };
    run_ranks(helped(1, asked), program);
    EXPECT_EQ(threads_here().count("progress 0"), 0U);
  }
}

}  // namespace
}  // namespace coshard::testing
