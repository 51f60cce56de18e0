#include <coshard/runtime/launch/simulate.h>

#include <algorithm>
#include <utility>

#include <coshard/runtime/error.h>
#include "runtime/comm/local/thread_group.h"
#include "runtime/comm/local/transfer_clock.h"
#include "runtime/launch/rank_fibers.h"
#include "runtime/launch/rank_host.h"

namespace coshard {
namespace {

// splitmix64
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : state_(seed) {}
  // 0 .. below - 1
  std::uint64_t operator()(std::uint64_t below) {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return (z ^ (z >> 31)) % below;
  }

 private:
  std::uint64_t state_;
};

// The ranks on fibers of this thread, and one fiber more: the network, which wakes ranks when a
// transfer that was put off may go on.
class Simulation final : public RankHost, public FiberPolicy, public TransferClock {
 public:
  Simulation(std::uint64_t seed, const SimOptions& sim) : draw_(seed), sim_(sim), fibers_(this) {}

  void run(int ranks, ThreadGroup& thread_group, const RankProgram& program) override;

  // FiberPolicy
  std::size_t pick(std::size_t runnable) override;
  bool virtual_time() const override { return true; }
  std::int64_t turn_ns() const override { return sim_.turn.count(); }

  // TransferClock
  bool go_on() override;
  bool pause() override;

  void tell(int rank, std::string what) {
    if (sim_.on_event) sim_.on_event({fibers_.thread().now(), rank, std::move(what)});
  }
  const SimOptions& options() const { return sim_; }

 private:
  void carry(Parker& parker);
  void standstill();
  std::string standing();

  Draw draw_;
  const SimOptions& sim_;
  RankFibers fibers_;
  ThreadGroup* thread_group_ = nullptr;
  Parker* network_ = nullptr;
  std::int64_t next_transfer_ns_ = 0;  // 0: none is put off
  std::int64_t turns_ = 0;
  int alive_ = 0;
};

void Simulation::run(int ranks, ThreadGroup& thread_group, const RankProgram& program) {
  thread_group_ = &thread_group;
  thread_group.use(*this);
  alive_ = ranks;
  const RankProgram counted{[&](int rank, Executor& executor) {
                              program.run(rank, executor);
                              if (--alive_ == 0) network_->ring();
                            },
                            program.failed, program.ended, nullptr, nullptr};
  for (int rank = 0; rank < ranks; ++rank) fibers_.add(rank, counted);
  network_ = &fibers_.thread().spawn([this](Parker& parker) { carry(parker); });
  fibers_.on_turn([this](int rank) { tell(rank, "goes on"); });
  fibers_.thread().on_stuck([this] { standstill(); });
  RankContext* const callers = RankContext::exchange(nullptr);
  std::exception_ptr error;
  try {
    fibers_.run();
  } catch (...) {
    error = std::current_exception();
  }
  RankContext::exchange(callers);
  if (error) std::rethrow_exception(error);
}

std::size_t Simulation::pick(std::size_t runnable) {
  const std::int64_t now = fibers_.thread().now();
  if (++turns_ > sim_.most_turns || now > sim_.limit.count())
    fail(ErrorKind::Timeout, str_cat("simulation: not finished after ", turns_, " turns and ",
                                     static_cast<double>(now) / 1e9, " s: ", standing()));
  return draw_(runnable);
}

bool Simulation::go_on() {
  if (draw_(2) == 0) return true;
  const auto longest =
      static_cast<std::uint64_t>(std::max<std::int64_t>(1, sim_.slowest_transfer.count()));
  const std::int64_t due = fibers_.thread().now() + 1 + static_cast<std::int64_t>(draw_(longest));
  if (next_transfer_ns_ == 0 || due < next_transfer_ns_) {
    next_transfer_ns_ = due;
    network_->ring();
  }
  return false;
}

bool Simulation::pause() {
  if (draw_(4) != 0) return true;
  Parker& parker = RankContext::current().parker();
  try {
    parker.park(1);
    parker.ring();  // it may have been rung meanwhile, and looks again
    return true;
  } catch (const Error&) {
    return false;
  }
}

// The network's main function.
void Simulation::carry(Parker& parker) {
  while (alive_ > 0) {
    parker.park(next_transfer_ns_);
    if (next_transfer_ns_ == 0 || parker.now() < next_transfer_ns_) continue;
    next_transfer_ns_ = 0;
    thread_group_->wake();
  }
}

std::string Simulation::standing() {
  std::string text;
  fibers_.each([&](int rank, Executor& executor) {
    text += str_cat(text.empty() ? "" : "; ", "rank ", rank, " ", executor.standing());
  });
  return text;
}

// A deadlock: every rank sleeps.
void Simulation::standstill() {
  const std::string text =
      str_cat("deadlock: all ranks sleep and nothing can wake them: ", standing());
  fibers_.each([&](int, Executor& executor) {
    executor.interrupt(std::make_exception_ptr(Error(ErrorKind::CommFailed, text)));
  });
  thread_group_->poison(text);
}

// Tells of what a rank issues, and kills it when its time has come. Of the rank, beside its
// program.
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
  int dies_after_ = -1;  // -1: it does not
};

Task<void> live(Simulation& simulation, const Program& program, World& world) {
  const Fate fate(simulation, world);
  co_await yield();  // a rank may be killed before it does anything
  Task<void> whole = program(world);
  co_await std::move(whole);
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
  for (const SimDeath& death : sim.deaths)
    CS_REQUIRE(death.rank >= 0 && death.rank < options.ranks && death.after >= 0,
               "simulate: invalid death of rank ", death.rank, " of ", options.ranks, " after ",
               death.after, " collectives");
  WorldOptions alone = options;
  alone.threads = 1;
  Simulation simulation(seed, sim);
  run_ranks_on(simulation, alone, [&](World& world) { return live(simulation, program, world); });
}

}  // namespace coshard
