// A program for run_test.py: once all ranks have met, the rank VICTIM ends as MODE says, and the
// others wait for it in a collective. usage: run_program MODE VICTIM [options of run()]
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>

#include <coshard/coshard.h>
namespace cs = coshard;

namespace {

std::string mode;
int victim = 0;

void end_as_told() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  std::cerr << "dying at " << std::chrono::duration<double>(now).count() << std::endl;
  if (mode == "exit") ::_exit(3);
  if (mode == "quit0") std::exit(0);
  if (mode == "kill") ::raise(SIGKILL);
  if (mode == "segv") ::raise(SIGSEGV);
  CS_REQUIRE(!mode.starts_with("throw"), "this rank was told to fail");
}

cs::Task<void> program(cs::World& world) {
  cs::DeviceMesh mesh = cs::init_device_mesh(world, {world.size()}, {"tp"});
  cs::DTensor x = cs::randn(mesh, cs::Shard(0), {4, 8});
  co_await x.redistribute(cs::Replicate());
  std::cout << "met" << std::endl;
  if (world.rank() == victim) end_as_told();
  co_await x.redistribute(cs::Replicate());
}

// Of the process of the victim: "throw late" ends 1.5 s after the failure; "throw and recover" has
// another run, which succeeds, and ends with code 7; "throw uncaught" is not caught.
int run_and_then(const cs::WorldOptions& options) {
  bool is_here = false;
  const auto noting = [&](cs::World& world) {
    if (world.rank() == victim) is_here = true;
    return program(world);
  };
  try {
    cs::run_ranks(options, noting);
  } catch (const cs::Error& error) {
    std::cerr << "caught: " << error.what() << std::endl;
    if (mode == "throw uncaught") throw;
  }
  if (mode == "throw late" && is_here) ::sleep(2);
  if (mode != "throw and recover") return 1;
  mode = "none";
  cs::run_ranks(options, program);
  return is_here ? 7 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::cerr.precision(20);
  cs::WorldOptions options = cs::take_world_options(argc, argv);
  mode = argv[1];
  victim = std::atoi(argv[2]);
  return mode.starts_with("throw ") ? run_and_then(options) : cs::run(options, program);
}
