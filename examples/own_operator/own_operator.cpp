// A user-defined operator with rule and gradient (smooth_clip.h) among built-in ones, and a custom
// rule for a built-in one.
#include <iostream>

#include "examples/own_operator/smooth_clip.h"
namespace cs = coshard;

// Every rank sorts all rows: the built-in rule would leave them sharded.
cs::Rule whole_everywhere(std::span<const cs::TensorInfo>, const cs::Attrs&) {
  cs::Rule rule;
  rule.in = {".."};
  rule.out = {"..", ".."};
  return rule;
}

cs::Task<void> program(cs::World& world) {
  cs::register_sharding("sort", whole_everywhere);
  cs::DeviceMesh mesh = cs::init_device_mesh(world, {world.size()}, {"tp"});
  cs::DTensor x = cs::linspace({mesh, cs::Shard(0)}, -8, 8, 4 * world.size()).requires_grad_();
  cs::DTensor y = own::smooth_clip(x, 2);
  co_await y.sum().backward();
  cs::Tensor gradient = x.grad().full_tensor();
  cs::DTensor rows = cs::randn(mesh, cs::Shard(0), {world.size(), 3});
  cs::DTensor sorted = cs::sort(rows).values;
  if (world.rank() > 0) co_return;
  std::cout << "clipped: " << cs::describe(y) << "\n"
            << "gradient: " << gradient << "\n"
            << "sorted: " << cs::describe(sorted) << "\n";
}

int main(int argc, char** argv) { return cs::run(argc, argv, program); }
