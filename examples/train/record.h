#pragma once
// What one rank keeps of its steps: the observers that fill its table and its trace, the losses and
// the times. Rank 0 writes losses and times into the Outcome and shows the progress. On the rank's
// thread, while it trains.
#include <cstdint>
#include <vector>

#include <coshard/dtensor/tensor.h>
#include "examples/train/progress.h"
#include "examples/train/training.h"

namespace coshard::train {

class Record {
 public:
  Record(World& world, const Options& options, Outcome& outcome);
  ~Record();
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;

  // Adds and removes the observers at the right steps; steps count from 0.
  void before_step(int step);
  // `loss` need not be there yet. The losses are read when it is time to: on the cpu, where they
  // are there anyway, after each step, on a device every tenth, and after the `last` step. False:
  // one of those read is not finite; alike on all ranks.
  bool after_step(int step, Tensor loss, bool last);

 private:
  bool read(int step, bool last);

  World& world_;
  Outcome& outcome_;
  ExitTable& table_;
  ChromeTrace& trace_;
  Progress progress_;
  int settled_, trace_begin_, trace_end_, read_every_;
  bool tracing_ = false;
  std::vector<Tensor> unread_;
  std::int64_t begin_, wall_ = 0;  // ns, of what is unread and of the steps that count
};

}  // namespace coshard::train
