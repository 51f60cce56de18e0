// A state of torch's optimizers, as torch.distributed.checkpoint keeps it, makes the next step of ours
// theirs (tests/hf/make_optimizers.py).
#include <memory>

#include "dtensor/checkpoint/model_folder.h"
#include "tests/dtensor/checkpoint/stored_files.h"
#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

struct TwoLinears : Module {
  TwoLinears(World& world, DType dtype)
      : net1(10, 16, world, {.dtype = dtype}), net2(16, 5, world, {.dtype = dtype}) {
    register_module("net1", net1);
    register_module("net2", net2);
  }
  nn::Linear net1, net2;
};

using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(std::vector<Tensor>)>;

// All tensors of the file whose names begin so, without that.
Task<State> state_of_file(World& world, std::string path, std::string prefix) {
  State there, found;
  const ModelFolder file(path);
  for (std::size_t i = 0; i < file.size(); ++i) {
    const StoredTensor stored = file[i].tensor;
    if (!stored.name.starts_with(prefix)) continue;
    const Shape shape(stored.shape.begin(), stored.shape.end());
    const Tensor x = Tensor::empty(world.device(), shape, *to_dtype(stored.type));
    there.add(std::string(stored.name), x);
    found.add(std::string(stored.name.substr(prefix.size())), x);
  }
  LoadOptions some;
  some.strict = false;
  Task<LoadReport> loading = load(there, path, some);
  const LoadReport report = co_await std::move(loading);
  EXPECT_TRUE(report.missing.empty() && report.cast.empty());
  co_return found;
}

Task<void> next_step(World& world, std::string path, DType dtype, MakeOptimizer make) {
  TwoLinears net(world, dtype);
  if (world.size() > 1) {
    ParallelPlan plan;
    plan["net1"] = ColwiseParallel();
    plan["net2"] = RowwiseParallel();
    Task<void> cut = parallelize_module(net, line(world), plan);
    co_await std::move(cut);
  }
  Task<State> before = state_of_file(world, path, "before.");
  const State start = co_await std::move(before);
  Task<LoadReport> loading = load_state_dict(net, start);
  co_await std::move(loading);
  const std::unique_ptr<Optimizer> optimizer = make(net.parameters());
  Task<State> keeping = state_of_file(world, path, "optimizer.");
  const State kept = co_await std::move(keeping);
  Task<LoadReport> filling = load_state_dict(*optimizer, net, kept);
  co_await std::move(filling);
  Task<State> reading = state_of_file(world, path, "gradient.");
  const State gradients = co_await std::move(reading);
  for (const NamedParameter& p : net.named_parameters()) {
    Tensor gradient = gradients[p.name];
    if (p.slot->is_distributed())
      gradient = distribute_tensor(gradient, p.slot->mesh(), p.slot->layout());
    Tensor loss = sum(mul(*p.slot, gradient));
    if (loss.is_distributed()) loss = loss.full_tensor();
    co_await backward(loss);
  }
  co_await optimizer->step();
  Task<State> after = state_of_file(world, path, "after.");
  const State want = co_await std::move(after);
  for (const NamedParameter& p : net.named_parameters()) {
    const Tensor full = p.slot->is_distributed() ? full_tensor(p.slot->detach()) : p.slot->detach();
    const std::vector<double> got = full.to_vector(), theirs = want[p.name].to_vector();
    EXPECT_EQ(got.size(), theirs.size());
    for (std::size_t i = 0; i < std::min(got.size(), theirs.size()); ++i)
      EXPECT_NEAR(got[i], theirs[i], dtype == DType::F64 ? 1e-13 : 1e-6) << p.name << ' ' << i;
  }
}

void expect_next_step(const std::string& name, DType dtype, const MakeOptimizer& make) {
  for (const int ranks : {1, 2})
    on_ranks(ranks, [&](World& world) -> Task<void> {
      SCOPED_TRACE(str_cat(name, " on ", world.size()));
      Task<void> stepped =
          next_step(world, str_cat(COSHARD_HF "/optimizers/", name, ".safetensors"), dtype, make);
      co_await std::move(stepped);
    });
}

MakeOptimizer adamw(const AdamWOptions& options) {
  return [options](std::vector<Tensor> parameters) {
    return std::make_unique<AdamW>(std::move(parameters), options);
  };
}
MakeOptimizer sgd(const SGDOptions& options) {
  return [options](std::vector<Tensor> parameters) {
    return std::make_unique<SGD>(std::move(parameters), options);
  };
}

// The rate comes from the file.
TEST(OptimizerOracles, S39AdamW) {
  expect_next_step("adamw", DType::F32,
                   adamw({.betas = {0.8, 0.95}, .eps = 1e-6, .weight_decay = 0.1}));
  expect_next_step("adamw_amsgrad", DType::F32, adamw({.amsgrad = true}));
  expect_next_step("adamw_f64", DType::F64, adamw({}));
}
TEST(OptimizerOracles, S39SGD) {
  expect_next_step("sgd", DType::F32,
                   sgd({.momentum = 0.9, .weight_decay = 0.05, .nesterov = true}));
  expect_next_step("sgd_plain_momentum", DType::F64, sgd({.momentum = 0.9}));
}

}  // namespace
}  // namespace coshard::testing
