#pragma once
// Ranks as bare threads for tests of communicators, without executors. Each test owns its threads;
// an exception ends its rank only, so that a test sees what every rank got.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "runtime/comm/local/thread_group.h"
#include "runtime/comm/make_communicator.h"
#include "tests/support/device.h"
#include "tests/support/fake_mpi.h"

namespace coshard::test {

using coshard::testing::on_cpu;
using coshard::testing::test_device;
using coshard::testing::test_options;

constexpr std::int64_t kSecond = 1'000'000'000;

struct Outcome {
  bool failed = false;
  ErrorKind kind{};
  std::string text;
};

// The device under test of the rank whose thread this is.
inline std::shared_ptr<Device>& bare_device() {
  thread_local std::shared_ptr<Device> device;
  return device;
}
inline const std::shared_ptr<Device>& device_here() {
  return World::current() != nullptr ? World::current()->device() : bare_device();
}

// Elements on the device of the rank, and the host's copy of them, which is what [] sees.
template <class T>
class Array {
 public:
  explicit Array(std::size_t n, T value = T())
      : size_(n),
        elements_(std::make_unique<T[]>(n + 1)),
        buffer_(device_here()->make_buffer(n * sizeof(T))) {
    std::fill_n(elements_.get(), n, value);
  }
  explicit Array(std::int64_t n) : Array(static_cast<std::size_t>(n)) {}
  T& operator[](std::size_t i) { return elements_[i]; }
  T& operator[](std::int64_t i) { return elements_[static_cast<std::size_t>(i)]; }
  T& operator[](int i) { return elements_[static_cast<std::size_t>(i)]; }
  T& front() { return elements_[0]; }
  T& back() { return elements_[size_ - 1]; }
  std::int64_t size() const { return static_cast<std::int64_t>(size_); }
  const std::shared_ptr<Buffer>& buffer() const { return buffer_; }
  void* data() const { return buffer_->data(); }
  // To the device, and back; get() waits for what is queued.
  void* put() {
    buffer_->device()->upload(data(), elements_.get(), size_ * sizeof(T));
    return data();
  }
  Array& get() {
    buffer_->device()->download(elements_.get(), data(), size_ * sizeof(T));
    return *this;
  }

 private:
  std::size_t size_;
  std::unique_ptr<T[]> elements_;
  std::shared_ptr<Buffer> buffer_;
};
using Floats = Array<float>;

// The communicator of `rank` on its device under test; on the rank's thread.
inline std::shared_ptr<Communicator> communicator_of(ThreadGroup& thread_group, int rank,
                                                     std::int64_t timeout_ns = 100 * kSecond) {
  auto control = thread_group.communicator(rank);
  control->set_timeout(timeout_ns);
  const int count = device_count(test_device());
  bare_device() = make_device(test_device(), {count > 0 ? rank % count : rank, 1});
  bare_device()->set_timeout(timeout_ns);
  return make_communicator("local", std::move(control), bare_device());
}

// Runs body(communicator, rank) on every rank and returns how each ended. What is queued when the
// body ends is waited for, as a world does.
template <class Body>
std::vector<Outcome> outcomes_on_ranks(int ranks, const Body& body) {
  // Over several processes where the test is run so (COSHARD_TEST_PROCESSES: ranks in each).
  const char* per_process = std::getenv("COSHARD_TEST_PROCESSES");
  const int in_each = per_process != nullptr ? std::atoi(per_process) : ranks;
  const bool spread = per_process != nullptr && ranks % in_each == 0 && ranks / in_each <= 8;
  std::unique_ptr<testing::FakeProcesses> processes;
  std::unique_ptr<ThreadGroup> threads_alone;
  if (spread)
    processes = std::make_unique<testing::FakeProcesses>(ranks, in_each, 1);
  else
    threads_alone = std::make_unique<ThreadGroup>(ranks, "tp");
  std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
      std::shared_ptr<Communicator> mine;
      try {
        mine = communicator_of(spread ? processes->group_of(rank) : *threads_alone, rank);
        body(*mine, rank);
        bare_device()->synchronize();
      } catch (const Error& error) {
        outcome = {true, error.kind(), error.what()};
      } catch (const std::exception& error) {
        outcome = {true, ErrorKind::BadInput, error.what()};
      }
      mine.reset();
      if (spread) processes->leave(rank);
      bare_device().reset();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

// Waits until the host may read the result.
inline void wait_on_host(const Work& work) {
  work.wait();
  device_here()->synchronize();
}

// The same, and no rank may fail.
template <class Body>
void on_ranks(int ranks, const Body& body) {
  for (const Outcome& outcome : outcomes_on_ranks(ranks, body))
    EXPECT_FALSE(outcome.failed) << outcome.text;
}

inline Counts counts_of(std::vector<std::int64_t> counts) {
  return std::make_shared<const std::vector<std::int64_t>>(std::move(counts));
}

// An all_reduce (sum of f32) of `data` in place.
inline Collective sum_of(Floats& data, CallSite where = CallSite::current()) {
  Collective c;
  c.kind = CollectiveKind::AllReduce;
  c.dtype = DType::F32;
  c.extent = data.size();
  c.send = c.recv = data.put();
  c.keep_send = data.buffer();
  c.where = where;
  return c;
}

}  // namespace coshard::test
