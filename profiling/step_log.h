#pragma once
// What the steps of a training loop took: losses, times, the cost of communication, a trace of a
// few of them, and a progress line. Rank's thread; rank 0 gets the figures.
#include <cstdint>
#include <deque>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include <coshard/dtensor/tensor/tensor.h>
#include <coshard/profiling/chrome_trace.h>
#include <coshard/profiling/comm_summary.h>
#include <coshard/runtime/launch/world.h>
#include "profiling/json.h"
#include "profiling/robust_stats.h"

namespace coshard {

// Steps at the start that the figures exclude: caches fill and kernels are compiled.
constexpr int kSettlingSteps = 2;

struct StepFigures {
  int first = 0;                      // how many steps had been made before
  std::vector<double> loss, step_ms;  // by step
  // Of the time of the steps that count; none on a device that queues its work.
  std::optional<double> gemm_share;
  std::vector<CommSummary> tables;  // of every rank
  std::vector<ChromeTrace> traces;  // likewise; none unless requested

  // The first step, counted from 1, whose loss is not finite; 0: all are.
  int bad_step() const;
  std::string bad_loss() const;  // "the loss is nan"
  RobustStats settled_ms() const;
  std::size_t dropped() const;  // events that the traces lack
};

// {"tokens_per_s", "step_ms" (of the median step), "step_ms_min", "step_ms_max", "gemm_share",
// "hidden_share", "communication": {"exposed_ms_per_step", "rows": [{"kind", "for", "per_step",
// …}]}, "loss"}: means over ranks and over the steps that have settled. What a row hides of its time
// in flight is 1 - blocked / in flight. `steps`, `tokens`: as StepLogOptions.
Json to_json(const StepFigures& figures, int steps, double tokens);
// How many steps, their times, and the table of communication if there are several ranks.
void print_steps(std::ostream& out, const StepFigures& figures, double tokens);

// One reading of the run, by rank 0's clock and table: of one step or, on a device, of several.
struct Reading {
  double step_ms = 0;                             // mean
  std::int64_t in_flight_ns = 0, blocked_ns = 0;  // of collectives that were awaited; 0: none
};

// "step 12/100  loss 2.1000  5000 tokens/s  40 % of communication hidden  1:23 left", shortened to
// at most `columns`. hidden in [0, 1]; negative: there is no communication.
std::string progress_line(int step, int steps, double loss, double tokens_per_s, double hidden,
                          double seconds_left, int columns);

// On a terminal a line that is rewritten in place, at most as wide as that is; in a log, a plain
// line now and then. No colors.
class Progress {
 public:
  // tokens: of one step.
  Progress(int steps, int log_every, double tokens);
  // step counts from 1; last: none follows. All figures except the loss cover the last 50 readings.
  void step(int step, double loss, const Reading& one, bool last);

 private:
  std::string line(int step, double loss, int columns) const;

  int steps_, log_every_;
  double tokens_;
  bool terminal_;
  std::int64_t shown_at_ = 0;  // steady clock, ns
  std::deque<Reading> recent_;
};

struct StepLogOptions {
  int first = 0, steps = 0;  // how many have been made before; how many there will be
  int log_every = 50;        // as Progress
  double tokens = 0;
  int trace_steps = 0;  // how many a trace holds, after the first
};

class StepLog {
 public:
  StepLog(World& world, const StepLogOptions& options, StepFigures& figures);
  ~StepLog();
  StepLog(const StepLog&) = delete;
  StepLog& operator=(const StepLog&) = delete;

  // Adds and removes the observers at the right steps; steps count from 0.
  void before_step(int step);
  // `loss` may be in flight. Losses are read after every step on the cpu, where they have arrived
  // anyway, after every tenth on a device, and after the `last` step. False: one of those read is
  // not finite; the same on all ranks.
  bool after_step(int step, Tensor loss, bool last);
  // `ns` since the last step were spent on no step.
  void skip(std::int64_t ns) { begin_ += ns; }
  // After the last step, on all ranks: gathers their tables and traces on rank 0.
  Task<void> gather();

 private:
  bool read(int step, bool last);
  Reading reading(std::int64_t took, std::size_t steps);
  void observe(Observer& observer, bool& is_on, bool on);

  World& world_;
  StepFigures& figures_;
  CommSummary table_;
  ChromeTrace trace_;
  Progress progress_;
  int settled_, trace_begin_, trace_end_, read_every_;
  bool tabulating_ = false, tracing_ = false;
  std::vector<Tensor> unread_;
  CommSummary::Row told_;          // the total of the table at the last reading
  std::int64_t begin_, wall_ = 0;  // ns: start of the unread steps; time of the steps that count
};

}  // namespace coshard
