#include "examples/train/record.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <coshard/profiling/gather.h>

namespace coshard::train {
namespace {

constexpr int kReadEvery = 10;  // steps between two readings of the losses on a device

}  // namespace

Record::Record(World& world, const Options& options, int first, Outcome& outcome)
    : world_(world),
      outcome_(outcome),
      progress_(options.steps, options.log_every, 1.0 * options.batch * options.seq),
      settled_(std::min(first + kSettlingSteps, options.steps - 1)),
      trace_begin_(options.trace.empty() ? -1 : std::min(first + 1, options.steps - 1)),
      trace_end_(trace_begin_ + options.trace_steps),
      read_every_(world.device()->kind() == DeviceKind::Cpu ? 1 : kReadEvery),
      traces_(!options.trace.empty()),
      begin_(now_ns()) {
  world_.add_observer(&table_);
}

Record::~Record() { stop_observing(); }

void Record::stop_observing() {
  if (std::exchange(tabulating_, false)) world_.remove_observer(&table_);
  if (std::exchange(tracing_, false)) world_.remove_observer(&trace_);
}

Task<void> Record::gather() {
  world_.device()->synchronize();  // it tells of the last steps
  stop_observing();
  Task<std::vector<CommSummary>> all = gather_summaries(world_, table_);
  std::vector<CommSummary> tables = co_await std::move(all);
  std::vector<ChromeTrace> traces;
  if (traces_) {
    Task<std::vector<ChromeTrace>> of_all = gather_traces(world_, trace_);
    traces = co_await std::move(of_all);
  }
  if (world_.rank() != 0) co_return;
  if (!world_.device()->queues()) outcome_.gemm_share = table_.gemm_share(wall_);
  outcome_.tables = std::move(tables);
  outcome_.traces = std::move(traces);
}

void Record::before_step(int step) {
  if (step == settled_) {
    world_.device()->synchronize();  // it tells of the steps before
    table_.reset();
    told_ = {};
  }
  const bool trace = trace_begin_ >= 0 && step >= trace_begin_ && step < trace_end_;
  if (trace && !tracing_) world_.add_observer(&trace_);
  if (!trace && tracing_) {
    world_.device()->synchronize();
    world_.remove_observer(&trace_);
  }
  tracing_ = trace;
}

bool Record::after_step(int step, Tensor loss, bool last) {
  unread_.push_back(std::move(loss));
  const bool wait = (step + 1) % read_every_ != 0 && !last;
  return wait || read(step, last);
}

bool Record::read(int step, bool last) {
  std::vector<double> losses;
  for (const Tensor& loss : unread_) losses.push_back(loss.item());
  unread_.clear();
  const std::int64_t took = now_ns() - std::exchange(begin_, now_ns());
  if (step >= settled_) wall_ += took;
  const bool finite = std::ranges::all_of(losses, [](double loss) { return std::isfinite(loss); });
  if (world_.rank() != 0) return finite;
  const Look seen = look(took, losses.size());
  outcome_.loss.insert(outcome_.loss.end(), losses.begin(), losses.end());
  outcome_.step_ms.insert(outcome_.step_ms.end(), losses.size(), seen.step_ms);
  progress_.step(step + 1, losses.back(), seen, last || !finite);
  return finite;
}

Look Record::look(std::int64_t took, std::size_t steps) {
  const CommSummary::Row before = std::exchange(told_, table_.total());
  return {static_cast<double>(took) / 1e6 / static_cast<double>(steps),
          told_.in_flight_ns - before.in_flight_ns, told_.blocked_ns - before.blocked_ns};
}

}  // namespace coshard::train
