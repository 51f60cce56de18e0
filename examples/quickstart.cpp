#include <coshard/coshard.h>

#include <iostream>

namespace cs = coshard;

cs::Task<void> program(cs::World& world) {
  cs::DeviceMesh mesh = cs::init_device_mesh(world, {world.size()}, {"tp"});
  cs::manual_seed(1);
  cs::nn::MLP mlp({.dim = 8, .ffn = 32}, world);
  cs::ParallelPlan plan;
  plan["w[13]"] = cs::ColwiseParallel{};
  plan["w2"] = cs::RowwiseParallel{};
  co_await cs::parallelize_module(mlp, mesh, plan);

  cs::Tensor x = cs::randn(world.device(), {4, 8});
  cs::AdamW optimizer(mlp.parameters(), {.lr = 1e-2});
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    cs::Tensor error = co_await mlp.forward(x) - x;  // one all_reduce forward
    cs::Tensor loss = cs::mean(error * error);
    co_await cs::backward(loss);  // and one backward
    co_await optimizer.step();
    if (world.rank() == 0) std::cout << "step " << step << ": loss " << loss.item() << '\n';
  }
  cs::DTensor half = mlp.w1.weight;  // every rank holds its part
  cs::DTensor full = co_await half.redistribute(cs::Replicate());
  if (world.rank() == 0) std::cout << cs::describe(half) << " -> " << cs::describe(full) << '\n';
}

int main(int argc, char** argv) { return cs::run(argc, argv, program); }
