// A program that does the same until it ends, for tests that disturb it from outside: sums over all
// ranks, each of which is checked.
//
//   steady_job KIB SUMS MILLISECONDS [--first KIB] [run's options]
//
// MILLISECONDS: between two sums. --first: rank 1 sends so much to rank 2 before; the others wait.
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
  std::size_t first;  // bytes
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

void send_first(cs::World& world, std::size_t bytes) {
  if (world.rank() != 1 && world.rank() != 2) return;
  std::vector<float> data(bytes / sizeof(float));
  cs::Collective call;
  call.kind = world.rank() == 1 ? cs::CollectiveKind::Send : cs::CollectiveKind::Recv;
  call.root = 3 - world.rank();
  call.extent = static_cast<std::int64_t>(data.size());
  call.send = call.recv = data.data();
  world.communicator()->issue(call).wait();
  say(cs::str_cat("rank ", world.rank(), " is done with the first"));
}

cs::Task<void> program(cs::World& world, Plan plan) {
  if (world.rank() == 0) tell_port();
  const auto comm = world.communicator();
  if (plan.first > 0) send_first(world, plan.first);
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
  Plan plan{static_cast<std::size_t>(std::atoi(argv[1])) * 256, std::atoi(argv[2]),
            std::atoi(argv[3]), 0};
  std::vector<char*> rest{argv[0]};
  int next = 4;
  if (argc > 5 && argv[4] == std::string("--first")) {
    plan.first = static_cast<std::size_t>(std::atoi(argv[5])) * 1024;
    next = 6;
  }
  for (int i = next; i < argc; ++i) rest.push_back(argv[i]);
  return cs::run(static_cast<int>(rest.size()), rest.data(),
                 [&](cs::World& world) { return program(world, plan); });
}
