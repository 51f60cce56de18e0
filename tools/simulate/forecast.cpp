#include "tools/simulate/forecast.h"

#include "kernels/sim/table.h"
#include "runtime/device/sim/representative.h"

namespace coshard::tools {
namespace {

double bytes_of(const Tensor& x) {
  return static_cast<double>(x.local_numel()) * static_cast<double>(size_of(x.dtype()));
}

double bytes_of_gradients(const std::vector<Tensor>& parameters) {
  double bytes = 0;
  for (const Tensor& p : parameters)
    if (const Tensor g = p.grad(); g.defined()) bytes += bytes_of(g);
  return bytes;
}

// Observes the second step of a training.
class Measured {
 public:
  Measured(World& world, VirtualDevice& device, Forecast& forecast, bool traced)
      : world_(world), device_(device), forecast_(forecast), ledger_(device) {
    world_.add_observer(&ledger_);
    if (traced) {
      trace_ = std::make_unique<VirtualTrace>(device);
      world_.add_observer(trace_.get());
    }
    device_.on_kernel = [this](const KernelWork& work, std::int64_t begin, std::int64_t end) {
      ledger_.kernel(work, begin, end);
      if (trace_) trace_->kernel(work, begin, end);
    };
    device_.reset_peak();
    last_ = begin_ = now();
  }
  ~Measured() {
    device_.on_kernel = nullptr;
    world_.remove_observer(&ledger_);
    if (trace_) world_.remove_observer(trace_.get());
  }
  Measured(const Measured&) = delete;
  Measured& operator=(const Measured&) = delete;

  void done(Phase phase) {
    MemoryForecast& memory = forecast_.memory;
    const auto in_use = static_cast<double>(device_.memory().in_use);
    switch (phase) {
      case Phase::Begin: held_ = in_use; break;
      case Phase::Forward:
        memory.activations = in_use - held_;
        forecast_.forward = since_last();
        break;
      case Phase::Backward: forecast_.backward = since_last(); break;
      case Phase::Optimizer: forecast_.optimizer = since_last(); break;
    }
  }
  void finish() {
    forecast_.step = now() - begin_;
    forecast_.compute = ledger_.compute;
    forecast_.exposed = ledger_.exposed;
    forecast_.in_flight = ledger_.in_flight;
    forecast_.flops = ledger_.flops;
    forecast_.modules = std::move(ledger_.modules);
    forecast_.collectives = std::move(ledger_.collectives);
    forecast_.memory.peak = static_cast<double>(device_.memory().peak);
    if (trace_) forecast_.trace.push_back(std::move(*trace_));
  }

 private:
  std::int64_t now() const { return device_.compute_stream().now; }
  std::int64_t since_last() {
    const std::int64_t before = last_;
    last_ = now();
    return last_ - before;
  }

  World& world_;
  VirtualDevice& device_;
  Forecast& forecast_;
  Ledger ledger_;
  std::unique_ptr<VirtualTrace> trace_;
  std::int64_t begin_ = 0, last_ = 0;
  double held_ = 0;
};

void measure_state(LlamaTraining& training, const VirtualDevice& device, Forecast& forecast) {
  MemoryForecast& memory = forecast.memory;
  for (const Tensor& p : training.parameters()) {
    memory.parameters += bytes_of(p);
    forecast.parameters += static_cast<double>(p.numel());
  }
  memory.gradients = bytes_of_gradients(training.parameters());
  memory.optimizer =
      static_cast<double>(device.memory().in_use) - memory.parameters - memory.gradients;
}

Task<void> two_steps(World& world, const LlamaRun& run, VirtualDevice& device, bool traced,
                     Forecast& forecast) {
  LlamaTraining training(world, run);
  Task<void> prepared = training.prepare();
  co_await std::move(prepared);
  Task<void> first = training.step([](Phase) {});
  co_await std::move(first);
  measure_state(training, device, forecast);
  Measured measured(world, device, forecast, traced);
  PhaseDone done = [&measured](Phase phase) { measured.done(phase); };
  Task<void> second = training.step(std::move(done));
  co_await std::move(second);
  measured.finish();
}

}  // namespace

Forecast forecast_of(const LlamaRun& run, const ProcessorModel& processor, bool traced) {
  check(run);
  kernels::add_sim_kernels();
  const auto device = std::make_shared<VirtualDevice>(processor);
  Forecast forecast;
  forecast.memory.capacity = processor.memory;
  const LinkOf link_of = [&run](const std::string& name, const std::vector<int>&) {
    return link_named(run.links, name);
  };
  const Program program = [&](World& world) {
    return two_steps(world, run, *device, traced, forecast);
  };
  constexpr bool kGathersByShards = false;  // as NcclCommunicator
  run_representative(ranks_of(run.mesh), device, link_of, program, kGathersByShards);
  return forecast;
}

}  // namespace coshard::tools
