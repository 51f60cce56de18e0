#pragma once
// All orders in which devices may run what has been queued on their streams (FakeDriver::Queued):
// whether one of them hangs. A search over states, on one thread and without time.
//
// A device has hardware queues and multiprocessors. Each of its streams belongs to one queue, which
// takes ops in the order in which they were queued, and starts only the op at its head: once the op
// before it in its stream, and what it comes after, are complete. A collective's kernel leaves the
// queue when it begins, takes up its share of the multiprocessors, and ends after all its ranks
// have begun; another kernel needs a free share for a moment. All other ops are done at once; when,
// changes nothing but what can go on after them, so that one order of these stands for all.
//
// A kernel is one unit here: it begins as a whole, and what comes after its launch finds it so. CUDA
// promises that for events after a kernel, but for launch completion events its best effort only.
//
// The host queues everything before the devices start. A later host only delays the devices: what
// they then do, they could do here, too.
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/support/fake_cuda/fake_driver.h"

namespace coshard::testing {

class FakeSchedules {
 public:
  // `residents`: so many collectives fit on a device at a time. `place` of a stream of a device:
  // streams with the same one are in the same hardware queue.
  using Places = std::map<std::pair<int, int>, int>;
  FakeSchedules(const std::vector<FakeDriver::Queued>& ops, const Places& places, int residents);

  struct Found {
    std::uint64_t states = 0, schedules = 0, hangs = 0;  // hangs: schedules that do not end
    std::string example;                                 // of a hang: "0 begins A, 1 begins B"
    void add(const Found& other);
  };
  Found search();

  // Over all ways to put the streams of each device into at most `queues` hardware queues.
  static Found search_all(const std::vector<FakeDriver::Queued>& ops, int queues, int residents);

 private:
  enum Progress : char { Waiting, Begun, Done };
  using State = std::string;  // the progress of each op
  struct Step {
    std::size_t op;
    Progress to;
  };
  struct Counts {
    std::uint64_t schedules = 0, hangs = 0;
  };
  bool may_start(const State& state, std::size_t op) const;
  bool may_end(const State& state, std::size_t op) const;
  int residents_on(const State& state, int device) const;
  void settle(State& state) const;  // does what is done at once
  std::vector<Step> steps(const State& state) const;
  Counts count(const State& state);
  std::string text_of(const Step& step) const;

  const std::vector<FakeDriver::Queued>& ops_;
  int residents_;
  std::vector<std::vector<std::size_t>> queues_;  // the ops of each, in order
  std::vector<std::ptrdiff_t> before_;            // the previous op in the stream; -1: none
  std::map<std::uint64_t, std::vector<std::size_t>> meetings_;  // the ops of each
  std::map<std::uint64_t, char> names_;                         // A, B, ... as they were queued
  std::unordered_map<State, Counts> known_;
  std::vector<Step> path_;
  std::string example_;
};

}  // namespace coshard::testing
