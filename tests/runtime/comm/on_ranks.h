#pragma once
// Ranks as bare threads for tests of communicators, without executors. Each test owns its threads;
// an exception ends its rank only, so that a test sees what every rank got.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/comm/local/thread_group.h"
#include "runtime/comm/make_communicator.h"
#include "runtime/launch/rank_directory.h"
#include "tests/support/device.h"
#include "tests/support/nanoseconds.h"
#include "tests/support/spread.h"

namespace coshard::testing {

using coshard::testing::kSecond;
using coshard::testing::on_cpu;
using coshard::testing::test_device;
using coshard::testing::test_options;

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
inline std::shared_ptr<Communicator> communicator_of(std::shared_ptr<Communicator> control,
                                                     int rank,
                                                     std::int64_t timeout_ns = 100 * kSecond) {
  control->set_timeout(timeout_ns);
  const int count = device_count(test_device());
  bare_device() = make_device(test_device(), {count > 0 ? rank % count : rank, 1});
  bare_device()->set_timeout(timeout_ns);
  return make_communicator("local", std::move(control), bare_device());
}

// Runs body(communicator, rank) on every rank and returns how each ended. What is queued when the
// body ends is waited for, as a world does. Where worlds are spread (spread.h): of those in this
// process; the others count as not failed.
template <class Body>
std::vector<Outcome> outcomes_on_ranks(int ranks, const Body& body) {
  const std::unique_ptr<RankDirectory> directory = testing::spread_directory(test_options(ranks));
  std::optional<ThreadGroup> threads_alone;
  std::vector<int> here(static_cast<std::size_t>(ranks));
  std::iota(here.begin(), here.end(), 0);
  if (directory == nullptr)
    threads_alone.emplace(ranks);
  else
    here = directory->here();
  std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (const int rank : here) {
    threads.emplace_back([&, rank] {
      Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
      std::shared_ptr<Communicator> mine;
      try {
        mine = communicator_of(
            directory ? directory->control(rank) : threads_alone->communicator(rank), rank);
        body(*mine, rank);
        bare_device()->synchronize();
      } catch (const Error& error) {
        outcome = {true, error.kind(), error.what()};
      } catch (const std::exception& error) {
        outcome = {true, ErrorKind::BadInput, error.what()};
      }
      mine.reset();
      if (directory != nullptr) directory->leave(rank);
      bare_device().reset();
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (directory != nullptr) directory->end();
  return outcomes;
}

// Without those of ranks in other processes.
template <class Body>
std::vector<Outcome> outcomes_here(int ranks, const Body& body) {
  std::vector<char> here(static_cast<std::size_t>(ranks), 0);
  const std::vector<Outcome> all = outcomes_on_ranks(ranks, [&](Communicator& comm, int rank) {
    here[static_cast<std::size_t>(rank)] = 1;
    body(comm, rank);
  });
  std::vector<Outcome> found;
  for (std::size_t r = 0; r < all.size(); ++r)
    if (here[r] != 0) found.push_back(all[r]);
  return found;
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

}  // namespace coshard::testing
