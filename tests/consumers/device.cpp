// A program that runs on the device that it is told to: what it finds where there is no CUDA.
#include <coshard/coshard.h>

#include <iostream>
namespace cs = coshard;

cs::Task<void> program(cs::World& world) {
  const cs::Tensor x = cs::ones(world.device(), {2, 3});
  std::cout << "sum " << cs::sum(x).item() << " on " << world.device()->name() << "\n";
  co_return;
}

int main(int argc, char** argv) { return cs::run(argc, argv, program); }
