#include <coshard/runtime/launch/simulate.h>

#include <algorithm>
#include <utility>

#include <coshard/runtime/error.h>
#include "runtime/launch/rank_directory.h"
#include "runtime/launch/rank_world.h"
#include "runtime/launch/simulation.h"

namespace coshard {
namespace {

// Reports what a rank issues, and kills the rank after its given number of collectives. One per
// rank, alive as long as its program.
class Fate final : public Observer {
 public:
  Fate(Simulation& simulation, World& world) : simulation_(simulation), world_(world) {
    for (const SimDeath& death : simulation.options().deaths)
      if (death.rank == world.rank()) dies_after_ = death.after;
    if (simulation.options().on_event || dies_after_ >= 0) world_.add_observer(this);
    die_if_due();
  }
  ~Fate() { world_.remove_observer(this); }
  Fate(const Fate&) = delete;
  Fate& operator=(const Fate&) = delete;

  void issued(const CommEvent& event, std::int64_t) override {
    ++issued_;
    if (simulation_.options().on_event)
      simulation_.tell(world_.rank(), str_cat("issues ", to_string(event.kind), " #",
                                              event.sequence, " on ", event.communicator));
    die_if_due();
  }

 private:
  void die_if_due() {
    if (issued_ != dies_after_) return;
    dies_after_ = -1;
    simulation_.tell(world_.rank(), "is killed");
    const std::string text = str_cat("rank ", world_.rank(), " was killed after it had issued ",
                                     issued_, " collectives");
    world_.executor().interrupt(std::make_exception_ptr(Error(ErrorKind::CommFailed, text)));
  }

  Simulation& simulation_;
  World& world_;
  int issued_ = 0;
  int dies_after_ = -1;  // -1: never
};

Task<void> live(Simulation& simulation, const Program& program, World& world) {
  const Fate fate(simulation, world);
  co_await yield();  // a rank may be killed before it does anything
  Task<void> whole = program(world);
  co_await std::move(whole);
}

void check(const SimOptions& sim, int ranks) {
  for (const SimDeath& death : sim.deaths)
    CS_REQUIRE(death.rank >= 0 && death.rank < ranks && death.after >= 0,
               "simulate: invalid death of rank ", death.rank, " of ", ranks, " after ",
               death.after, " collectives");
  const int all = sim.processes;
  CS_REQUIRE(all >= 1 && all <= SimulatedMpi::kMostProcesses && ranks % all == 0,
             "simulate: processes ", all, " must be 1 to ", SimulatedMpi::kMostProcesses,
             " and divide the ", ranks, " ranks");
  const SimNetwork& network = sim.network;
  CS_REQUIRE(network.lost >= 0 && network.lost <= 1,
             "simulate: network.lost is a probability, got ", network.lost);
  CS_REQUIRE(all > 1 || (network.deaths.empty() && network.lost == 0),
             "simulate: a network that loses messages or kills processes needs several processes");
  for (const SimProcessDeath& death : network.deaths)
    CS_REQUIRE(death.process >= 0 && death.process < all && death.after >= 0,
               "simulate: invalid death of process ", death.process, " of ", all, " after ",
               death.after, " messages");
}

}  // namespace

void simulate(const WorldOptions& options, const Program& program, std::uint64_t seed,
              const SimOptions& sim) {
  CS_REQUIRE(options.device == DeviceKind::Cpu && options.communicator == "local",
             "simulate: only device cpu with communicator local can be simulated, got ",
             to_string(options.device), " and ", options.communicator);
  CS_REQUIRE(options.progress_threads == 0 && options.rank_threads == 0,
             "simulate: progress_threads ", options.progress_threads, " and rank_threads ",
             options.rank_threads, " must be 0: a simulation runs on the thread that calls it");
  CS_REQUIRE(program, "simulate: the program is an empty function");
  WorldOptions alone = settled(options, {});  // ignores this process's launcher
  alone.threads = 1;
  check(sim, alone.ranks);
  Simulation simulation(seed, sim, alone);
  simulation.run(alone, [&](World& world) { return live(simulation, program, world); });
}

}  // namespace coshard
