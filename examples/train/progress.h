#pragma once
// The progress line: on a terminal rewritten in place, at most as wide as that is; in a log, a
// plain line now and then. No colors. Rank 0's thread.
#include <cstdint>
#include <deque>
#include <string>

namespace coshard::train {

// One reading of the run: of one step or, on a device, of several.
struct Look {
  double step_ms = 0;                             // mean
  std::int64_t in_flight_ns = 0, blocked_ns = 0;  // of collectives that were awaited; 0: none
};

// "step 12/100  loss 2.1000  5000 tokens/s  40 % of communication hidden  1:23 left", shortened to
// at most `columns`. hidden in [0, 1]; negative: there is no communication.
std::string progress_line(int step, int steps, double loss, double tokens_per_s, double hidden,
                          double seconds_left, int columns);

class Progress {
 public:
  // tokens: of one step.
  Progress(int steps, int log_every, double tokens);
  // step counts from 1; last: none follows. All figures except the loss cover the last 50 readings.
  void step(int step, double loss, const Look& look, bool last);

 private:
  std::string line(int step, double loss, int columns) const;

  int steps_, log_every_;
  double tokens_;
  bool terminal_;
  std::int64_t shown_at_ = 0;  // steady clock, ns
  std::deque<Look> recent_;
};

}  // namespace coshard::train
