// A program that does the same until it ends, for tests that disturb it from outside: sums over all
// ranks, each of which is checked.
//
//   steady_job KIB SUMS MILLISECONDS [run's options]      between two sums: so many milliseconds
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include <coshard/coshard.h>
#include <coshard/runtime/error.h>
#include <coshard/runtime/launch/world.h>
#include "runtime/launch/job.h"
#include "runtime/launch/launcher.h"

namespace cs = coshard;

namespace {

struct Plan {
  std::size_t elements;
  int sums, milliseconds;
};

void say(const std::string& line) { std::cout << line + '\n' << std::flush; }

// Small integers: exact.
float value(int rank, int sum, std::size_t i) {
  return static_cast<float>(
      (static_cast<std::size_t>(rank + 1) * 7 + i + static_cast<std::size_t>(sum)) % 1000);
}

void check(const std::vector<float>& data, int ranks, int sum) {
  for (std::size_t i = 0; i < data.size(); i += 1 + data.size() / 4096) {
    float expected = 0;
    for (int r = 0; r < ranks; ++r) expected += value(r, sum, i);
    CS_REQUIRE(data[i] == expected, "sum ", sum, " at ", i, " is ", data[i], ", not ", expected);
  }
}

// Where strangers knock.
void tell_port() {
  const std::optional<cs::Launched> launched = cs::launched();
  if (!launched) return;
  cs::Job& job = cs::Job::current(*launched, std::chrono::milliseconds(0));
  if (launched->process == 0) say(cs::str_cat("liveness at port ", job.liveness().address().port));
}

cs::Task<void> program(cs::World& world, Plan plan) {
  if (world.rank() == 0) tell_port();
  const auto comm = world.communicator();
  std::vector<float> data(plan.elements);
  for (int sum = 0; sum < plan.sums; ++sum) {
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = value(world.rank(), sum, i);
    cs::Collective call;
    call.kind = cs::CollectiveKind::AllReduce;
    call.reduce = cs::Reduce::Sum;
    call.extent = static_cast<std::int64_t>(data.size());
    call.send = call.recv = data.data();
    co_await comm->issue(call);
    check(data, world.size(), sum);
    if (world.rank() == 0) say(cs::str_cat("sum ", sum));
    std::this_thread::sleep_for(std::chrono::milliseconds(plan.milliseconds));
  }
  if (world.rank() == 0) say("all sums are right");
}

}  // namespace

int main(int argc, char** argv) {
  const Plan plan{static_cast<std::size_t>(std::atoi(argv[1])) * 256, std::atoi(argv[2]),
                  std::atoi(argv[3])};
  std::vector<char*> rest{argv[0]};
  for (int i = 4; i < argc; ++i) rest.push_back(argv[i]);
  return cs::run(static_cast<int>(rest.size()), rest.data(),
                 [&](cs::World& world) { return program(world, plan); });
}
