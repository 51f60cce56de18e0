#pragma once
// Ranks as bare threads for tests of communicators, without executors. Each test owns its threads;
// an exception ends its rank only, so that a test sees what every rank got.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "runtime/comm/local/fabric.h"

namespace coshard::test {

constexpr std::int64_t kSecond = 1'000'000'000;

struct Outcome {
  bool failed = false;
  ErrorKind kind{};
  std::string text;
};

// Runs body(communicator, rank) on every rank and returns how each ended.
template <class Body>
std::vector<Outcome> outcomes_on_ranks(int ranks, const Body& body) {
  LocalFabric fabric(ranks, "tp");
  std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
  std::vector<std::shared_ptr<Communicator>> communicators;
  for (int rank = 0; rank < ranks; ++rank) {
    communicators.push_back(fabric.communicator(rank));
    communicators.back()->set_timeout(100 * kSecond);
  }
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back(
        [&, rank, mine = std::move(communicators[static_cast<std::size_t>(rank)])]() mutable {
          Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
          try {
            body(*mine, rank);
          } catch (const Error& error) {
            outcome = {true, error.kind(), error.what()};
          } catch (const std::exception& error) {
            outcome = {true, ErrorKind::BadInput, error.what()};
          }
          mine.reset();
        });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
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
inline Collective sum_of(std::vector<float>& data, CallSite where = CallSite::current()) {
  Collective c;
  c.kind = CollectiveKind::AllReduce;
  c.dtype = DType::F32;
  c.extent = static_cast<std::int64_t>(data.size());
  c.send = data.data();
  c.recv = data.data();
  c.where = where;
  return c;
}

}  // namespace coshard::test
