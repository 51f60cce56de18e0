#include "examples/train/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string_view>
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

// Whether stdout is a terminal that can rewrite a line.
bool is_terminal() {
  const char* kind = std::getenv("TERM");
  return ::isatty(STDOUT_FILENO) == 1 && kind != nullptr && std::string_view(kind) != "dumb";
}

int columns_now() {
  winsize size{};
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

}  // namespace

std::string progress_line(int step, int steps, double loss, double tokens_per_s, double hidden,
                          double seconds_left, int columns) {
  const std::string at = fmt::format("step {:>{}}/{}", step, std::to_string(steps).size(), steps);
  const std::string now = fmt::format("  loss {:.4f}", loss);
  const std::string rate = fmt::format("  {:.0f} tokens/s", tokens_per_s);
  const std::string left = fmt::format("  {} left", clock_time(seconds_left));
  std::string share, long_share;
  if (hidden >= 0) {
    share = fmt::format("  {:.0f} % hidden", hidden * 100);
    long_share = fmt::format("  {:.0f} % of communication hidden", hidden * 100);
  }
  const std::string lines[] = {at + now + rate + long_share + left, at + now + rate + share + left,
                               at + now + share + left, at + now + left, at + now};
  for (const std::string& line : lines)
    if (static_cast<int>(line.size()) <= columns) return line;
  return at.substr(0, static_cast<std::size_t>(std::max(columns, 0)));
}

Progress::Progress(int steps, int log_every, double tokens)
    : steps_(steps), log_every_(log_every), tokens_(tokens), terminal_(is_terminal()) {}

std::string Progress::line(int step, double loss, int columns) const {
  std::vector<double> times;
  Look sum;
  for (const Look& look : recent_) {
    times.push_back(look.step_ms);
    sum.in_flight_ns += look.in_flight_ns;
    sum.blocked_ns += look.blocked_ns;
  }
  const double ms = robust_stats(times).median;
  const double blocked = static_cast<double>(sum.blocked_ns) /
                         static_cast<double>(std::max<std::int64_t>(1, sum.in_flight_ns));
  // The times are differences of two readings: one may include time before it.
  const double hidden = sum.in_flight_ns > 0 ? std::clamp(1 - blocked, 0.0, 1.0) : -1;
  return progress_line(step, steps_, loss, tokens_ / ms * 1e3, hidden, (steps_ - step) * ms / 1e3,
                       columns);
}

void Progress::step(int step, double loss, const Look& look, bool last) {
  recent_.push_back(look);
  if (recent_.size() > kRecent) recent_.pop_front();
  const std::int64_t now = now_ns();
  const bool show = terminal_ ? now - shown_at_ >= kRefresh : step == 1 || step % log_every_ == 0;
  if (!show && !last) return;
  shown_at_ = now;
  if (terminal_) {  // the last column is left free: a character there may begin a new line
    fmt::print("\r\033[K{}{}", line(step, loss, columns_now() - 1), last ? "\n" : "");
  } else {
    fmt::print("{}\n", line(step, loss, std::numeric_limits<int>::max()));
  }
  std::fflush(stdout);
}

}  // namespace coshard::train
