#include "examples/train/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <vector>

#include <coshard/runtime/observer.h>
#include "profiling/robust_stats.h"

namespace coshard::train {
namespace {

constexpr std::size_t kRecent = 50;
constexpr std::int64_t kRefresh = 200'000'000;  // ns between two lines on a terminal

std::string clock_time(double seconds) {
  const auto whole = static_cast<int>(seconds + 0.5);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

Progress::Progress(int steps, int log_every, double tokens)
    : steps_(steps),
      log_every_(log_every),
      tokens_(tokens),
      terminal_(::isatty(STDOUT_FILENO) == 1) {}

void Progress::step(int step, double loss, double step_ms, double hidden, bool last) {
  recent_.push_back(step_ms);
  if (recent_.size() > kRecent) recent_.pop_front();
  const std::int64_t now = now_ns();
  const bool show = terminal_ ? now - shown_at_ >= kRefresh : step == 1 || step % log_every_ == 0;
  if (!show && !last) return;
  shown_at_ = now;
  const double ms = robust_stats({recent_.begin(), recent_.end()}).median;
  std::string line = fmt::format("step {:>{}}/{}  loss {:.4f}  {:.0f} tokens/s", step,
                                 std::to_string(steps_).size(), steps_, loss, tokens_ / ms * 1e3);
  if (hidden >= 0) line += fmt::format("  {:.0f} % of communication hidden", hidden * 100);
  line += fmt::format("  {} left", clock_time((steps_ - step) * ms / 1e3));
  fmt::print("{}{}{}", terminal_ ? "\r\033[K" : "", line, !terminal_ || last ? "\n" : "");
  std::fflush(stdout);
}

}  // namespace coshard::train
