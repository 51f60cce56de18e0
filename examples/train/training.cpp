#include "examples/train/training.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>

#include "dtensor/optim/optimizer.h"
#include "dtensor/tape.h"
#include "examples/train/evaluate.h"
#include "examples/train/language_model.h"
#include "examples/train/progress.h"

namespace coshard::train {
namespace {

constexpr double kClip = 1.0;
constexpr int kReadEvery = 10;  // steps between two looks at the losses on a device

// One step; returns the loss before it, which the host has not waited for.
Task<Tensor> train_step(LanguageModel& model, AdamW& optimizer, Batch batch) {
  optimizer.zero_grad();
  Task<Tensor> forward = model.loss(std::move(batch));
  Tensor loss = co_await std::move(forward);
  co_await backward(loss);
  Task<Tensor> clip = clip_grad_norm(optimizer.parameters(), kClip);
  co_await std::move(clip);
  co_await optimizer.step();
  co_return loss.detach();
}

AdamWOptions adamw_options() {
  AdamWOptions options;
  options.beta1 = 0.9;
  options.beta2 = 0.95;
  options.weight_decay = 0.1;
  return options;
}

// Adds and removes the observers of one rank at the right steps.
class Watch {
 public:
  Watch(World& world, const Options& options, Outcome& outcome)
      : world_(world),
        table_(outcome.tables[static_cast<std::size_t>(world.rank())]),
        trace_(outcome.traces[static_cast<std::size_t>(world.rank())]),
        settled_(std::min(kSettlingSteps, options.steps - 1)),
        trace_begin_(options.trace.empty() ? -1 : std::min(1, options.steps - 1)),
        trace_end_(trace_begin_ + options.trace_steps) {
    world_.add_observer(&table_);
  }
  ~Watch() {
    world_.remove_observer(&table_);
    if (tracing_) world_.remove_observer(&trace_);
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  void before_step(int step) {
    if (step == settled_) table_.reset();
    const bool trace = trace_begin_ >= 0 && step >= trace_begin_ && step < trace_end_;
    if (trace && !tracing_) world_.add_observer(&trace_);
    if (!trace && tracing_) world_.remove_observer(&trace_);
    tracing_ = trace;
  }
  int settled() const { return settled_; }
  const ExitTable& table() const { return table_; }

 private:
  World& world_;
  ExitTable& table_;
  ChromeTrace& trace_;
  int settled_, trace_begin_, trace_end_;
  bool tracing_ = false;
};

Task<void> train_steps(LanguageModel& model, World& world, const Options& options, const Text& text,
                       Outcome& outcome) {
  AdamW optimizer(model.module().parameters(), adamw_options());
  std::mt19937_64 generator(options.seed);
  Progress progress(options.steps, options.log_every, 1.0 * options.batch * options.seq);
  Watch watch(world, options, outcome);
  // Reading a loss makes the host wait for the device; on the cpu it is there anyway.
  const int read_every = world.device()->kind() == DeviceKind::Cpu ? 1 : kReadEvery;
  std::vector<Tensor> unread;
  std::int64_t wall = 0, begin = now_ns();
  for (int step = 0; step < options.steps; ++step) {
    watch.before_step(step);
    optimizer.lr = learning_rate(options, step);
    Task<Tensor> one = train_step(model, optimizer, text.draw(generator, options.batch));
    unread.push_back(co_await std::move(one));
    if ((step + 1) % read_every != 0 && step + 1 < options.steps) continue;
    std::vector<double> losses;
    for (const Tensor& loss : unread) losses.push_back(loss.item());
    const std::int64_t took = now_ns() - std::exchange(begin, now_ns());
    if (step >= watch.settled()) wall += took;
    const double step_ms = static_cast<double>(took) / 1e6 / static_cast<double>(losses.size());
    unread.clear();
    if (world.rank() != 0) continue;
    outcome.loss.insert(outcome.loss.end(), losses.begin(), losses.end());
    outcome.step_ms.insert(outcome.step_ms.end(), losses.size(), step_ms);
    const double hidden = world.size() > 1 ? watch.table().hidden_share() : -1;
    progress.step(step + 1, losses.back(), step_ms, hidden);
  }
  if (world.rank() == 0) outcome.gemm_share = watch.table().gemm_share(wall);
}

}  // namespace

double learning_rate(const Options& options, int step) {
  if (step < options.warmup) return options.lr * (step + 1) / options.warmup;
  const double along =
      static_cast<double>(step - options.warmup) / std::max(1, options.steps - options.warmup);
  return options.lr * (0.1 + 0.45 * (1 + std::cos(std::numbers::pi * along)));
}

Task<void> train_rank(World& world, const Options& options, const Text& text, Outcome& outcome) {
  LanguageModel model(options, world);
  co_await model.parallelize();
  Task<void> steps = train_steps(model, world, options, text, outcome);
  co_await std::move(steps);
  Task<std::optional<double>> score = held_out_bits_per_byte(model, options, text);
  const std::optional<double> bits = co_await std::move(score);
  Task<std::string> draw = sample_continuation(model, options);
  std::string sample = co_await std::move(draw);
  if (world.rank() != 0) co_return;
  outcome.parameters = model.parameter_count();
  outcome.bits_per_byte = bits;
  outcome.sample = std::move(sample);
}

}  // namespace coshard::train
