// A program that does the same until it ends, for tests that disturb it from outside: sums over all
// ranks, each of which is checked.
//
//   steady_job KIB SUMS MILLISECONDS [--first KIB PIECES | --at-once KIB PIECES] [run's options]
//
// MILLISECONDS: between two sums. Before: --first: rank 1 sends so much to rank 2 in so many
// pieces, one after the other; the others wait. --at-once: all ranks gather so much of each, in
// pieces that are all on their way when the last one is awaited.
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>
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
  std::string_view first;             // how that is moved; empty: nothing is
  std::size_t bytes = 0, pieces = 1;  // of it
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

void send_first(cs::World& world, const Plan& plan) {
  if (world.rank() != 1 && world.rank() != 2) return;
  std::vector<float> data(plan.bytes / plan.pieces / sizeof(float));
  cs::Collective call;
  call.kind = world.rank() == 1 ? cs::CollectiveKind::Send : cs::CollectiveKind::Recv;
  call.root = 3 - world.rank();
  call.extent = static_cast<std::int64_t>(data.size());
  call.send = call.recv = data.data();
  for (std::size_t i = 0; i < plan.pieces; ++i) world.communicator()->issue(call).wait();
  say(cs::str_cat("rank ", world.rank(), " is done with the first"));
}

void gather_at_once(cs::World& world, const Plan& plan) {
  const auto ranks = static_cast<std::size_t>(world.size());
  const std::size_t each = plan.bytes / plan.pieces / sizeof(float);
  const std::vector<float> mine(each, static_cast<float>(world.rank()));
  std::vector<float> all(plan.pieces * ranks * each, -1.0F);
  std::vector<cs::Work> works;
  for (std::size_t i = 0; i < plan.pieces; ++i) {
    cs::Collective call;
    call.kind = cs::CollectiveKind::AllGather;
    call.extent = static_cast<std::int64_t>(ranks * each);
    call.send = mine.data();
    call.recv = all.data() + i * ranks * each;
    works.push_back(world.communicator()->issue(call));
  }
  works.back().wait();
  for (cs::Work& work : works) work.wait();
  for (std::size_t i = 0; i < all.size(); ++i)
    CS_REQUIRE(all[i] == static_cast<float>(i / each % ranks), "gathered ", all[i], " at ", i);
  if (world.rank() == 0) say("all is gathered");
}

cs::Task<void> program(cs::World& world, Plan plan) {
  if (world.rank() == 0) tell_port();
  const auto comm = world.communicator();
  if (plan.first == "--first") send_first(world, plan);
  if (plan.first == "--at-once") gather_at_once(world, plan);
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
  Plan plan{static_cast<std::size_t>(std::atoi(argv[1])) * 256,
            std::atoi(argv[2]),
            std::atoi(argv[3]),
            {}};
  std::vector<char*> rest{argv[0]};
  int next = 4;
  if (argc > 6 && (argv[4] == std::string("--first") || argv[4] == std::string("--at-once"))) {
    plan.first = argv[4];
    plan.bytes = static_cast<std::size_t>(std::atoi(argv[5])) * 1024;
    plan.pieces = static_cast<std::size_t>(std::atoi(argv[6]));
    next = 7;
  }
  for (int i = next; i < argc; ++i) rest.push_back(argv[i]);
  return cs::run(static_cast<int>(rest.size()), rest.data(),
                 [&](cs::World& world) { return program(world, plan); });
}
