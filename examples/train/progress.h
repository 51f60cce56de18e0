#pragma once
// The line that shows how training goes: rewritten in place on a terminal, a plain line now and
// then in a log. Rank 0's thread.
#include <cstdint>
#include <deque>

namespace coshard::train {

class Progress {
 public:
  // tokens: of one step.
  Progress(int steps, int log_every, double tokens);
  // hidden: share of communication under compute, in [0, 1]; negative: there is none. last: no
  // step follows.
  void step(int step, double loss, double step_ms, double hidden, bool last);

 private:
  int steps_, log_every_;
  double tokens_;
  bool terminal_;
  std::int64_t shown_at_ = 0;  // steady clock, ns
  std::deque<double> recent_;  // ms of the last steps
};

}  // namespace coshard::train
