#include "examples/train/training.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape/tape.h>
#include <coshard/runtime/trace_range.h>
#include <coshard/styles/checkpoints.h>
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

// The checkpoints of --save, if there are any.
class Saved {
 public:
  Saved(LanguageModel& model, AdamW& optimizer, const Options& options, Outcome& outcome)
      : options_(options), outcome_(outcome), seed_(static_cast<std::int64_t>(options.seed)) {
    if (options.save.empty()) return;
    kept_.emplace(model.module(), options.save,
                  CheckpointsOptions{.every = options.every, .keep = options.keep});
    kept_->add("optimizer", optimizer).add("seed", seed_);
  }
  // The step to go on from.
  Task<int> begin() {
    if (!kept_) co_return 0;
    if (!options_.resume) {
      Task<void> started = kept_->start();
      co_await std::move(started);
      co_return 0;
    }
    Task<std::int64_t> resumed = kept_->resume();
    const std::int64_t step = co_await std::move(resumed);
    CS_REQUIRE(seed_ == static_cast<std::int64_t>(options_.seed), "--seed ", options_.seed,
               ", but ", options_.save, " was trained with --seed ",
               static_cast<std::uint64_t>(seed_));
    co_return static_cast<int>(step);
  }
  Task<void> finish() {
    if (!kept_) co_return;
    Task<void> finished = kept_->finish();
    co_await std::move(finished);
  }
  bool is_due(int step) const {
    return kept_ && (step == options_.steps || (options_.every > 0 && step % options_.every == 0));
  }
  // After each step; ns that it took. `saves`: also if it is not due.
  Task<std::int64_t> after(World& world, int step, bool saves) {
    if (!kept_) co_return 0;
    const std::int64_t begin = now_ns();
    Task<void> kept = saves ? kept_->save(step) : kept_->after(step);
    co_await std::move(kept);
    const std::int64_t took = now_ns() - begin;
    if (world.rank() == 0 && (saves || is_due(step))) {
      outcome_.stall_ms.push_back(static_cast<double>(took) / 1e6);
      outcome_.saved = kept_->path(step);
    }
    co_return took;
  }

 private:
  const Options& options_;
  Outcome& outcome_;
  std::int64_t seed_;
  std::optional<Checkpoints> kept_;
};

// False: a loss is not finite. All ranks stop after the same step.
Task<bool> train_steps(LanguageModel& model, World& world, const Options& options, const Text& text,
                       Outcome& outcome) {
  AdamW optimizer(model.module().parameters(), adamw_options());
  Saved saved(model, optimizer, options, outcome);
  Task<int> begun = saved.begin();
  int step = co_await std::move(begun);
  if (world.rank() == 0) outcome.resumed_from = step;
  Record record(world, options, step, outcome);
  bool stop = false, finite = true;
  while (step < options.steps && !stop && finite) {
    record.before_step(step);
    const TraceRange range(str_cat("step ", step + 1));
    optimizer.lr = learning_rate(options, step);
    Batch batch = text.draw(options.seed, static_cast<std::uint64_t>(step), options.batch);
    Task<Tensor> one = train_step(model, optimizer, std::move(batch), options.overlap != "off");
    Tensor loss = co_await std::move(one);
    Task<bool> asked = world.stop_requested();
    stop = co_await std::move(asked);
    ++step;
    const bool saves = stop || saved.is_due(step);
    finite = record.after_step(step - 1, std::move(loss), saves || step == options.steps);
    if (!finite) break;
    Task<std::int64_t> kept = saved.after(world, step, stop || step == options.steps);
    record.skip(co_await std::move(kept));
  }
  if (options.steps == 0) {
    Task<std::int64_t> kept = saved.after(world, 0, true);
    co_await std::move(kept);
  }
  Task<void> finished = saved.finish();
  co_await std::move(finished);
  if (world.rank() == 0 && (step < options.steps || !finite)) outcome.stopped_after = step;
  co_await record.gather();
  co_return finite;
}

}  // namespace

int step_not_finite(const Outcome& outcome) {
  const auto finite = [](double loss) { return std::isfinite(loss); };
  const auto bad = std::ranges::find_if_not(outcome.loss, finite);
  if (bad == outcome.loss.end()) return 0;
  return outcome.resumed_from + static_cast<int>(bad - outcome.loss.begin()) + 1;
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
