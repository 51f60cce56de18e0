// Kernels that should be memory-bound: their minimal traffic per time, compared with a copy.
#include <functional>
#include <memory>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/dtensor/tape/tape.h>
#include "profiling/bench/gpu_cases.h"

namespace coshard::bench {
namespace {

constexpr double kShareOfCopy = 0.85;  // of the copy's bandwidth
constexpr double kBf16 = 2, kF32 = 4;

class Bandwidth {
 public:
  Bandwidth(World& world, const GpuSizes& sizes, GpuResults& results)
      : device_(world.device()), sizes_(sizes), results_(results) {}

  // `moved`: bytes that a call must read and write; `us`: its time.
  void add(const std::string& name, double moved, const RobustStats& us) {
    const auto rate = [moved](double microseconds) { return moved / microseconds / 1e3; };
    const RobustStats stats = {rate(us.median), rate(us.max), rate(us.min), 0, us.count};
    results_.push_back(measured(name, stats, "GB/s", std::nullopt, true));
    if (name == "copy") copy_rate_ = stats.median;
    if (name != "copy" && copy_rate_ > 0)
      results_.push_back(
          {name + "_of_copy", stats.median / copy_rate_, "share", kShareOfCopy, true, {}, {}});
  }

  template <class F>
  RobustStats timed(const F& call) const {
    return timed_on_device(*device_, call, sizes_.steps);
  }

  void copy() {
    const NoGradGuard no_grad;
    const Tensor from = zeros(device_, Shape{sizes_.copied}, DType::BF16);
    const Tensor to = zeros(device_, Shape{sizes_.copied}, DType::BF16);
    add("copy", 2 * kBf16 * static_cast<double>(sizes_.copied), timed([&] { copy_(to, from); }));
  }

  void norms() {
    const Shape shape{4 * sizes_.tokens, sizes_.hidden};
    const double elements = static_cast<double>(numel(shape));
    Tensor x = randn(device_, shape, DType::BF16);
    Tensor weight = ones(device_, Shape{sizes_.hidden}, DType::BF16);
    const Tensor bias = zeros(device_, Shape{sizes_.hidden}, DType::BF16);
    {
      const NoGradGuard no_grad;
      add("rms_norm", 2 * kBf16 * elements, timed([&] { rms_norm(x, weight); }));
      add("layer_norm", 2 * kBf16 * elements, timed([&] { layer_norm(x, weight, bias); }));
    }
    x.set_requires_grad(true);
    weight.set_requires_grad(true);
    const Tensor gradient = ones(device_, shape, DType::BF16);
    // forward reads x and writes y; backward reads x and its gradient and writes another
    const auto both = [&] {
      run_backward(rms_norm(x, weight), gradient);
      x.set_grad({});
      weight.set_grad({});
    };
    add("rms_norm_forward_backward", 5 * kBf16 * elements, timed(both));
  }

  void losses() {
    const Shape shape{sizes_.tokens, sizes_.vocab};
    const double elements = static_cast<double>(numel(shape));
    Tensor logits = randn(device_, shape, DType::BF16);
    const Tensor targets = zeros(device_, Shape{sizes_.tokens}, DType::I64);
    logits.set_requires_grad(true);
    // forward reads the logits; backward reads them and writes their gradient
    const auto both = [&] {
      run_backward(cross_entropy(logits, targets));
      logits.set_grad({});
    };
    add("cross_entropy", 3 * kBf16 * elements, timed(both));
  }

  Task<void> adamw() {
    std::vector<Tensor> parameters;
    for (int i = 0; i < 16; ++i) {
      Tensor parameter = zeros(device_, Shape{sizes_.parameters / 16});
      parameter.set_requires_grad(true);
      parameter.set_grad(ones(device_, Shape{sizes_.parameters / 16}));
      parameters.push_back(parameter);
    }
    AdamW optimizer(std::move(parameters));
    const std::function<Task<void>()> step = [&optimizer] { return optimizer.step(); };
    Task<RobustStats> timing = timed_steps(*device_, step, sizes_.steps);
    const RobustStats us = co_await std::move(timing);
    // reads the parameter, its gradient and two moments; writes all but the gradient
    add("adamw", 7 * kF32 * static_cast<double>(sizes_.parameters), us);
  }

 private:
  std::shared_ptr<Device> device_;
  const GpuSizes& sizes_;
  GpuResults& results_;
  double copy_rate_ = 0;
};

}  // namespace

Task<void> measure_bandwidth(World& world, const GpuSizes& sizes, GpuResults& results) {
  Bandwidth bandwidth(world, sizes, results);
  bandwidth.copy();
  bandwidth.norms();
  bandwidth.losses();
  Task<void> adamw = bandwidth.adamw();
  co_await std::move(adamw);
}

}  // namespace coshard::bench
