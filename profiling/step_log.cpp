#include "profiling/step_log.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <utility>

#include <coshard/profiling/gather.h>

namespace coshard {
namespace {

constexpr int kReadEvery = 10;  // steps between two readings of the losses on a device
constexpr std::size_t kRecent = 50;
constexpr std::int64_t kRefresh = 200'000'000;  // ns between two lines on a terminal

std::string clock_time(double seconds) {
  const auto whole = static_cast<int>(seconds + 0.5);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

double tokens_per_s(const RobustStats& ms, double tokens) {
  return ms.count == 0 ? 0 : tokens / ms.median * 1e3;
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

RobustStats StepFigures::settled_ms() const {
  if (step_ms.empty()) return {};
  const auto settled =
      static_cast<std::ptrdiff_t>(std::min<std::size_t>(kSettlingSteps, step_ms.size() - 1));
  return robust_stats({step_ms.begin() + settled, step_ms.end()});
}

int StepFigures::bad_step() const {
  const auto bad = std::ranges::find_if(loss, [](double one) { return !std::isfinite(one); });
  return bad == loss.end() ? 0 : first + static_cast<int>(bad - loss.begin()) + 1;
}

std::string StepFigures::bad_loss() const {
  const double bad = loss[static_cast<std::size_t>(bad_step() - first - 1)];
  if (std::isnan(bad)) return "the loss is nan";
  return bad > 0 ? "the loss is inf" : "the loss is -inf";
}

std::size_t StepFigures::dropped() const {
  std::size_t all = 0;
  for (const ChromeTrace& trace : traces) all += trace.dropped();
  return all;
}

Json to_json(const StepFigures& figures, int steps, double tokens) {
  const RobustStats ms = figures.settled_ms();
  const auto settled = static_cast<std::size_t>(std::clamp(steps - 1, 0, kSettlingSteps));
  const std::size_t made = figures.step_ms.size();  // a run that ended early may not have settled
  const auto counted =
      static_cast<double>(std::max<std::size_t>(1, made > settled ? made - settled : made) *
                          std::max<std::size_t>(1, figures.tables.size()));
  CommSummary all;
  for (const CommSummary& table : figures.tables) all.merge(table);
  Json rows = Json::array();
  for (const CommSummary::Row& row : all.rows())
    rows.push_back(
        {{"kind", to_string(row.kind)},
         {"for", row.label},
         {"per_step", static_cast<double>(row.count) / counted},
         {"bytes_per_step", static_cast<double>(row.bytes) / counted},
         {"in_flight_ms_per_step", static_cast<double>(row.in_flight_ns) * 1e-6 / counted},
         {"exposed_ms_per_step", static_cast<double>(row.exposed_ns) * 1e-6 / counted},
         {"blocked_ms_per_step", static_cast<double>(row.blocked_ns) * 1e-6 / counted}});
  const double exposed = static_cast<double>(all.total().exposed_ns) * 1e-6 / counted;
  return {{"tokens_per_s", tokens_per_s(ms, tokens)},
          {"step_ms", ms.median},
          {"step_ms_min", ms.min},
          {"step_ms_max", ms.max},
          {"gemm_share", figures.gemm_share ? Json(*figures.gemm_share) : Json()},
          {"hidden_share", all.total().in_flight_ns > 0 ? Json(all.hidden_share()) : Json()},
          {"communication", {{"exposed_ms_per_step", exposed}, {"rows", std::move(rows)}}},
          {"loss", figures.loss}};
}

void print_steps(std::ostream& out, const StepFigures& figures, double tokens) {
  const RobustStats ms = figures.settled_ms();
  out << fmt::format("{} steps, median {:.1f} ms ({:.1f} to {:.1f}): {:.0f} tokens/s",
                     figures.step_ms.size(), ms.median, ms.min, ms.max, tokens_per_s(ms, tokens));
  if (figures.gemm_share)
    out << fmt::format("; {:.1f} % of a step in GEMM and attention", *figures.gemm_share * 100);
  out << '\n';
  if (figures.tables.size() < 2) return;
  out << fmt::format("\nCommunication, mean over {} ranks:\n", figures.tables.size());
  print_comm_summary(out, figures.tables);
}

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
  Reading sum;
  for (const Reading& one : recent_) {
    times.push_back(one.step_ms);
    sum.in_flight_ns += one.in_flight_ns;
    sum.blocked_ns += one.blocked_ns;
  }
  const double ms = robust_stats(times).median;
  const double blocked = static_cast<double>(sum.blocked_ns) /
                         static_cast<double>(std::max<std::int64_t>(1, sum.in_flight_ns));
  // The times are differences of two readings: one may include time before it.
  const double hidden = sum.in_flight_ns > 0 ? std::clamp(1 - blocked, 0.0, 1.0) : -1;
  return progress_line(step, steps_, loss, tokens_ / ms * 1e3, hidden, (steps_ - step) * ms / 1e3,
                       columns);
}

void Progress::step(int step, double loss, const Reading& one, bool last) {
  recent_.push_back(one);
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

StepLog::StepLog(World& world, const StepLogOptions& options, StepFigures& figures)
    : world_(world),
      figures_(figures),
      progress_(options.steps, options.log_every, options.tokens),
      settled_(std::min(options.first + kSettlingSteps, options.steps - 1)),
      trace_begin_(std::min(options.first + 1, options.steps - 1)),
      trace_end_(trace_begin_ + options.trace_steps),
      read_every_(world.device()->kind() == DeviceKind::Cpu ? 1 : kReadEvery),
      begin_(now_ns()) {
  if (world.rank() == 0) figures.first = options.first;
  observe(table_, tabulating_, true);
}

StepLog::~StepLog() {
  observe(table_, tabulating_, false);
  observe(trace_, tracing_, false);
}

void StepLog::observe(Observer& observer, bool& is_on, bool on) {
  if (std::exchange(is_on, on) == on) return;
  if (on)
    world_.add_observer(&observer);
  else
    world_.remove_observer(&observer);
}

Task<void> StepLog::gather() {
  world_.device()->synchronize();  // it tells of the last steps
  observe(table_, tabulating_, false);
  observe(trace_, tracing_, false);
  Task<std::vector<CommSummary>> all = gather_summaries(world_, table_);
  std::vector<CommSummary> tables = co_await std::move(all);
  std::vector<ChromeTrace> traces;
  if (trace_end_ > trace_begin_) {
    Task<std::vector<ChromeTrace>> of_all = gather_traces(world_, trace_);
    traces = co_await std::move(of_all);
  }
  if (world_.rank() != 0) co_return;
  if (!world_.device()->queues()) figures_.gemm_share = table_.gemm_share(wall_);
  figures_.tables = std::move(tables);
  figures_.traces = std::move(traces);
}

void StepLog::before_step(int step) {
  const bool trace = step >= trace_begin_ && step < trace_end_;
  if (step == settled_ || trace != tracing_)
    world_.device()->synchronize();  // it tells of the steps before
  if (step == settled_) {
    table_.reset();
    told_ = {};
  }
  observe(trace_, tracing_, trace);
}

bool StepLog::after_step(int step, Tensor loss, bool last) {
  unread_.push_back(std::move(loss));
  const bool wait = (step + 1) % read_every_ != 0 && !last;
  return wait || read(step, last);
}

bool StepLog::read(int step, bool last) {
  std::vector<double> losses;
  for (const Tensor& loss : unread_) losses.push_back(loss.item());
  unread_.clear();
  const std::int64_t took = now_ns() - std::exchange(begin_, now_ns());
  if (step >= settled_) wall_ += took;
  const bool finite = std::ranges::all_of(losses, [](double loss) { return std::isfinite(loss); });
  if (world_.rank() != 0) return finite;
  const Reading seen = reading(took, losses.size());
  figures_.loss.insert(figures_.loss.end(), losses.begin(), losses.end());
  figures_.step_ms.insert(figures_.step_ms.end(), losses.size(), seen.step_ms);
  progress_.step(step + 1, losses.back(), seen, last || !finite);
  return finite;
}

Reading StepLog::reading(std::int64_t took, std::size_t steps) {
  const CommSummary::Row before = std::exchange(told_, table_.total());
  return {static_cast<double>(took) / 1e6 / static_cast<double>(steps),
          told_.in_flight_ns - before.in_flight_ns, told_.blocked_ns - before.blocked_ns};
}

}  // namespace coshard
