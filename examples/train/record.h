#pragma once
// What one rank records of its steps: the observers that fill its table and its trace, the losses
// and the times. Rank 0 writes losses and times into the Outcome and shows the progress. On the
// rank's thread, while it trains.
#include <cstdint>
#include <vector>

#include <coshard/dtensor/tensor/tensor.h>
#include "examples/train/progress.h"
#include "examples/train/training.h"

namespace coshard::train {

class Record {
 public:
  // `first`: how many steps have been made before.
  Record(World& world, const Options& options, int first, Outcome& outcome);
  ~Record();
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;

  // Adds and removes the observers at the right steps; steps count from 0.
  void before_step(int step);
  // `loss` may be in flight. Losses are read after every step on the cpu, where they have arrived
  // anyway, after every tenth on a device, and after the `last` step. False: one of those read is
  // not finite; the same on all ranks.
  bool after_step(int step, Tensor loss, bool last);
  // `ns` since the last step were spent on no step.
  void skip(std::int64_t ns) { begin_ += ns; }
  // After the last step, on all ranks: gathers their measurements into the Outcome of rank 0.
  Task<void> gather();

 private:
  bool read(int step, bool last);
  Look look(std::int64_t took, std::size_t steps);
  void stop_observing();

  World& world_;
  Outcome& outcome_;
  CommSummary table_;
  ChromeTrace trace_;
  Progress progress_;
  int settled_, trace_begin_, trace_end_, read_every_;
  bool tracing_ = false, tabulating_ = true, traces_;
  std::vector<Tensor> unread_;
  CommSummary::Row told_;          // the total of the table at the last reading
  std::int64_t begin_, wall_ = 0;  // ns: start of the unread steps; time of the steps that count
};

}  // namespace coshard::train
