#include "examples/train/training.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>

#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape.h>
#include <coshard/runtime/trace_range.h>
#include "examples/train/evaluate.h"
#include "examples/train/language_model.h"
#include "examples/train/record.h"

namespace coshard::train {
namespace {

constexpr double kClip = 1.0;

// One step; returns the loss before the update, which the host has not waited for.
Task<Tensor> train_step(LanguageModel& model, AdamW& optimizer, Batch batch, bool overlaps) {
  optimizer.zero_grad();
  Task<Tensor> forward = model.loss(model.part_of(std::move(batch)));
  Tensor loss = co_await std::move(forward);
  const std::vector<Tensor> mean{model.mean_over_replicas(loss)};
  if (!overlaps) {  // backward would hide it
    Task<void> arrived = arrival_of(mean);
    co_await std::move(arrived);
  }
  co_await backward(loss);
  Task<Tensor> clip = clip_grad_norm(optimizer.parameters(), kClip);
  co_await std::move(clip);
  co_await optimizer.step();
  Task<void> arrived = arrival_of(mean);
  co_await std::move(arrived);
  co_return mean.front();
}

AdamWOptions adamw_options() {
  AdamWOptions options;
  options.betas = {0.9, 0.95};
  options.weight_decay = 0.1;
  return options;
}

// False: a loss is not finite. All ranks stop after the same step.
Task<bool> train_steps(LanguageModel& model, World& world, const Options& options, const Text& text,
                       Outcome& outcome) {
  AdamW optimizer(model.module().parameters(), adamw_options());
  std::mt19937_64 generator(options.seed);
  Record record(world, options, outcome);
  bool stop = false, finite = true;
  int step = 0;
  for (; step < options.steps && !stop && finite; ++step) {
    record.before_step(step);
    const TraceRange range(str_cat("step ", step + 1));
    optimizer.lr = learning_rate(options, step);
    Task<Tensor> one =
        train_step(model, optimizer, text.draw(generator, options.batch), options.overlap != "off");
    Tensor loss = co_await std::move(one);
    Task<bool> asked = world.stop_requested();
    stop = co_await std::move(asked);
    finite = record.after_step(step, std::move(loss), stop || step + 1 == options.steps);
  }
  if (world.rank() == 0 && (step < options.steps || !finite)) outcome.stopped_after = step;
  co_await record.gather();
  co_return finite;
}

}  // namespace

int step_not_finite(const Outcome& outcome) {
  const auto finite = [](double loss) { return std::isfinite(loss); };
  const auto bad = std::ranges::find_if_not(outcome.loss, finite);
  return bad == outcome.loss.end() ? 0 : static_cast<int>(bad - outcome.loss.begin()) + 1;
}

double learning_rate(const Options& options, int step) {
  if (step < options.warmup) return options.lr * (step + 1) / options.warmup;
  const double along =
      static_cast<double>(step - options.warmup) / std::max(1, options.steps - options.warmup);
  return options.lr * (0.1 + 0.45 * (1 + std::cos(std::numbers::pi * along)));
}

Task<void> train_rank(World& world, const Options& options, const Text& text, Outcome& outcome) {
  LanguageModel model(options, world);
  co_await model.parallelize();
  Task<bool> steps = train_steps(model, world, options, text, outcome);
  if (world.rank() == 0) {
    outcome.parameters = model.parameter_count();
    outcome.threads = world.options().threads;
  }
  const bool finite = co_await std::move(steps);
  if (!finite) co_return;  // no score for a model of NaN
  Task<std::optional<double>> score = held_out_bits_per_byte(model, options, text);
  const std::optional<double> bits = co_await std::move(score);
  Task<std::string> draw = sample_continuation(model, options);
  std::string sample = co_await std::move(draw);
  if (world.rank() != 0) co_return;
  outcome.bits_per_byte = bits;
  outcome.sample = std::move(sample);
}

}  // namespace coshard::train
