// One call whose executed lines tools/read-through counts.
//   read_through redistribute | matmul | failure [run's options]
// redistribute, matmul: a warm call, on the ranks of one process. failure: from an exception of
// rank 1 to the end of its process, under mpirun.
#include <barrier>
#include <stdexcept>
#include <string>

#include <coshard/coshard.h>

extern "C" {
void __gcov_reset();
void __gcov_dump();
}

namespace cs = coshard;

namespace {

constexpr int kWarm = 3;

std::barrier both(2);

// While both ranks stand still.
void count(const cs::World& world, int call, bool begins) {
  if (call != kWarm) return;
  both.arrive_and_wait();
  if (world.rank() == 0) begins ? __gcov_reset() : __gcov_dump();
  both.arrive_and_wait();
}

cs::Task<void> redistribute(cs::World& world) {
  const cs::DeviceMesh mesh = cs::init_device_mesh(world, {world.size()}, {"tp"});
  const cs::DTensor x = cs::ones(mesh, cs::Shard(0), cs::Shape{64, 64});
  for (int call = 0; call <= kWarm; ++call) {
    count(world, call, true);
    const cs::DTensor whole = co_await x.redistribute(cs::Replicate());
    count(world, call, false);
  }
}

cs::Task<void> multiply(cs::World& world) {
  const cs::DeviceMesh mesh = cs::init_device_mesh(world, {world.size()}, {"tp"});
  const cs::DTensor x = cs::ones(mesh, cs::Replicate(), cs::Shape{64, 64});
  const cs::DTensor weight = cs::ones(mesh, cs::Shard(1), cs::Shape{64, 64});
  for (int call = 0; call <= kWarm; ++call) {
    count(world, call, true);
    const cs::DTensor product = cs::matmul(x, weight);
    count(world, call, false);
  }
  co_return;
}

cs::Task<void> fail(cs::World& world) {
  const cs::DeviceMesh mesh = cs::init_device_mesh(world, {world.size()}, {"tp"});
  const cs::DTensor x = cs::ones(mesh, cs::Shard(0), cs::Shape{64, 64});
  static_cast<void>(co_await x.redistribute(cs::Replicate()));
  if (world.rank() == 0) {  // waits for rank 1
    static_cast<void>(co_await x.redistribute(cs::Replicate()));
    co_return;
  }
  __gcov_reset();
  throw std::runtime_error("boom");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "redistribute") return cs::run(argc - 1, argv + 1, redistribute);
  if (what == "matmul") return cs::run(argc - 1, argv + 1, multiply);
  if (what == "failure") return cs::run(argc - 1, argv + 1, fail);
  return 2;
}
