#include <coshard/coshard.h>
#include <iostream>
namespace cs = coshard;

cs::Task<void> program(cs::World& world) {
  cs::DeviceMesh mesh = cs::init_device_mesh(world, {world.size()}, {"tp"});
  cs::nn::MLP mlp({.dim = 8, .ffn = 32}, world);
  cs::ParallelPlan plan;
  plan["w[13]"] = cs::ColwiseParallel{};
  plan["w2"] = cs::RowwiseParallel{};
  co_await cs::parallelize_module(mlp, mesh, plan);
  cs::AdamW optimizer(mlp.parameters(), {.lr = 1e-2});
  cs::Tensor x = cs::randn(world.device(), {4, 8});
  cs::Tensor error = co_await mlp.forward(x) - x;
  cs::Tensor loss = cs::mean(error * error);
  co_await cs::backward(loss);
  co_await optimizer.step();

  cs::DTensor shard = mlp.w1.weight;                                 // each rank holds some rows
  cs::DTensor whole = co_await shard.redistribute(cs::Replicate());  // issued, then awaited
  if (world.rank() == 0)
    std::cout << "loss " << loss.item() << "\n"
              << cs::describe(shard) << " -> " << cs::describe(whole) << "\n";
}

int main(int argc, char** argv) { return cs::run(argc, argv, program); }
