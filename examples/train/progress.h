#pragma once
// The line that shows how training goes: rewritten in place on a terminal, as wide as that is, and
// a plain line now and then in a log. No colors. Rank 0's thread.
#include <cstdint>
#include <deque>
#include <string>

namespace coshard::train {

// What one look at the run found; a look is at one step, or at several on a device.
struct Look {
  double step_ms = 0;                             // mean
  std::int64_t in_flight_ns = 0, blocked_ns = 0;  // of collectives that were awaited; 0: none
};

// "step 12/100  loss 2.1000  5000 tokens/s  40 % of communication hidden  1:23 left", or less of it
// where that is wider than `columns`. hidden in [0, 1]; negative: there is no communication.
std::string progress_line(int step, int steps, double loss, double tokens_per_s, double hidden,
                          double seconds_left, int columns);

class Progress {
 public:
  // tokens: of one step.
  Progress(int steps, int log_every, double tokens);
  // step counts from 1; last: none follows. All figures but the loss are those of the last 50
  // looks.
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
