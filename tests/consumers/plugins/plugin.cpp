// One of two shared objects of a process that both use the library: a is built like b.
#include <coshard/coshard.h>

namespace cs = coshard;

namespace {
cs::Task<void> work(cs::World& world) {
  const cs::DeviceMesh mesh = cs::init_device_mesh(world, {world.size()}, {"tp"});
  const cs::DTensor x = cs::ones(mesh, cs::Shard(0), {4});
  const cs::Redistribution whole = x.redistribute(cs::Replicate());
  const cs::DTensor y = co_await whole;
  CS_REQUIRE(cs::sum(y).item() == 4, "a sum of four ones is ", cs::sum(y));
}
}  // namespace

extern "C" void plugin_work() { cs::run_ranks({}, work); }
extern "C" cs::Module* plugin_module(cs::World& world) { return new cs::nn::Linear(2, 2, world); }
extern "C" void plugin_throw() { throw cs::Error(cs::ErrorKind::Timeout, "from a plugin"); }
