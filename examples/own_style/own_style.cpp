// Trains a linear layer with the style of batch_parallel.h: each rank on its own samples.
#include "examples/own_style/batch_parallel.h"

#include <iostream>
namespace cs = coshard;

cs::Task<void> program(cs::World& world) {
  cs::DeviceMesh mesh = cs::init_device_mesh(world, {world.size()}, {"dp"});
  cs::nn::Linear linear(4, 4, world);
  co_await cs::parallelize_module(linear, mesh, BatchParallel());
  cs::SGD optimizer(linear.parameters(), {.lr = 0.1});
  for (int step = 0; step < 20; ++step) {
    cs::Tensor x = cs::to_local(cs::randn(mesh, cs::Shard(0), {16 * world.size(), 4}));
    cs::Tensor error = co_await linear.forward(x) - x;
    cs::Tensor loss = cs::mean(error * error) / world.size();  // its share of the whole mean
    optimizer.zero_grad();
    co_await cs::backward(loss);
    co_await optimizer.step();
    if (world.rank() == 0 && step % 5 == 4)
      std::cout << "step " << step + 1 << " loss " << loss.item() << "\n";
  }
}

int main(int argc, char** argv) { return cs::run(argc, argv, program); }
