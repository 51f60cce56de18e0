#include "runtime/launch/simulation.h"

#include <algorithm>
#include <optional>

#include <coshard/runtime/error.h>
#include "runtime/comm/local/thread_group.h"
#include "runtime/comm/peer_failure.h"

namespace coshard {

Simulation::Simulation(std::uint64_t seed, const SimOptions& sim, const WorldOptions& world)
    : draw_(seed),
      sim_(sim),
      per_process_(world.ranks / sim.processes),
      alive_(world.ranks),
      fibers_(world.stack_bytes, this) {
  for (int p = 0; p < sim.processes; ++p)
    processes_.push_back(std::make_unique<SimProcess>(*this, p, per_process_));
  if (sim.processes > 1) mpi_ = std::make_unique<SimulatedMpi>(network_of(~seed));
}

SimulatedMpiOptions Simulation::network_of(std::uint64_t seed) {
  SimulatedMpiOptions options;
  options.processes = sim_.processes;
  options.seed = seed;
  options.lost = sim_.network.lost;
  options.slowest = sim_.network.slowest.count();
  options.now = [this] { return now(); };
  options.due = [this](int process, std::int64_t time_ns) {
    at(time_ns, [this, process] { processes_[static_cast<std::size_t>(process)]->arrived(); });
  };
  options.sent = [this](int process, const std::string& what) {
    tell(process * per_process_, what);
  };
  for (const SimProcessDeath& death : sim_.network.deaths)
    options.deaths.emplace(death.process, death.after);
  options.died = [this](int process) { died(process); };
  return options;
}

void Simulation::run(const WorldOptions& options, const Program& program) {
  std::vector<std::unique_ptr<RankDirectory>> directorys;
  for (const auto& process : processes_)
    directorys.push_back(process->make_directory(options, mpi_.get()));
  for (int rank = 0; rank < options.ranks; ++rank)
    fibers_.add(rank, processes_[static_cast<std::size_t>(rank / per_process_)]->ranks());
  network_ = &fibers_.thread().spawn([this](Parker& parker) { carry(parker); });
  for (std::size_t p = 0; p < processes_.size(); ++p)
    fibers_.thread().spawn([&, p](Parker& parker) {
      processes_[p]->live(parker, options, std::move(directorys[p]), program);
    });
  fibers_.on_turn([this](int rank) { tell(rank, "goes on"); });
  fibers_.thread().on_stuck([this] { on_deadlock(); });
  RankContext* const callers = RankContext::exchange(nullptr);
  std::exception_ptr error;
  try {
    fibers_.run();
  } catch (...) {
    error = std::current_exception();
  }
  RankContext::exchange(callers);
  if (!error) error = first_error();
  if (error) std::rethrow_exception(error);
}

std::size_t Simulation::pick(std::size_t runnable) {
  if (++turns_ > sim_.most_turns || now() > sim_.limit.count())
    fail(ErrorKind::Timeout, str_cat("simulation: not finished after ", turns_, " turns and ",
                                     static_cast<double>(now()) / 1e9, " s: ", standing()));
  return draw_(runnable);
}

std::int64_t Simulation::later(std::chrono::nanoseconds most) {
  const auto longest = static_cast<std::uint64_t>(std::max<std::int64_t>(1, most.count()));
  return now() + 1 + static_cast<std::int64_t>(draw_(longest));
}

void Simulation::at(std::int64_t time_ns, std::function<void()> event) {
  const auto place = events_.emplace(time_ns, std::move(event));
  if (place == events_.begin() && network_ != nullptr) network_->unpark();
}

bool Simulation::go_on() {
  if (draw_(2) == 0) return true;
  const std::int64_t due = later(sim_.slowest_transfer);
  if (next_transfer_ns_ != 0 && due >= next_transfer_ns_) return false;
  next_transfer_ns_ = due;
  at(due, [this, due] {
    if (next_transfer_ns_ != due) return;
    next_transfer_ns_ = 0;
    for (const auto& process : processes_) process->wake();
  });
  return false;
}

// The network fiber's main function.
void Simulation::carry(Parker& parker) {
  RankContext context(&parker);
  while (alive_ > 0) {
    RankContext::exchange(&context);
    const std::int64_t next = events_.empty() ? 0 : events_.begin()->first;
    if (next == 0 || next > parker.now()) {
      parker.park(next);
      continue;
    }
    const auto due = events_.extract(events_.begin());
    due.mapped()();
  }
}

// Over reliable, ordered connections; see liveness.h.
void Simulation::tell_later(int from, int to, std::function<void()> told) {
  std::int64_t& last = said_[{from, to}];
  last = std::max(last + 1, later(sim_.network.slowest));
  at(last, std::move(told));
}

// Process 0 relays to all others, unless it has died.
void Simulation::pass_on(int from, const std::function<void(SimProcess&)>& told) {
  if (mpi_->dead(0)) return;
  for (int to = 0; to < sim_.processes; ++to) {
    SimProcess* const process = processes_[static_cast<std::size_t>(to)].get();
    if (to != from) tell_later(0, to, [process, told] { told(*process); });
  }
}

void Simulation::say(int from, const Notice& notice) {
  if (mpi_->dead(from)) return;
  const auto told = [notice](SimProcess& process) { process.heard(notice); };
  if (from == 0) return pass_on(0, told);
  tell_later(from, 0, [this, from, told] { pass_on(from, told); });
}

// Called with the network's lock held. The process's connections end.
void Simulation::died(int dead) {
  tell(dead * per_process_, str_cat("is killed, with process ", dead));
  SimProcess* const mine = processes_[static_cast<std::size_t>(dead)].get();
  at(now(), [mine] { mine->died("it was killed"); });
  const auto told = [dead](SimProcess& process) { process.peer_died(dead, "it was killed"); };
  if (dead != 0) return tell_later(dead, 0, [this, dead, told] { pass_on(dead, told); });
  for (int to = 1; to < sim_.processes; ++to) {
    SimProcess* const process = processes_[static_cast<std::size_t>(to)].get();
    tell_later(0, to, [process, told] { told(*process); });
  }
}

bool Simulation::note_failed(int process) {
  failed_.push_back(process);
  return failed_.size() == 1;
}

void Simulation::rank_ended() {
  if (--alive_ > 0) return;
  network_->unpark();
  for (const auto& process : processes_) process->awake();
}

std::string Simulation::standing() {
  std::string text;
  fibers_.each([&](int rank, Executor& executor) {
    text += str_cat(text.empty() ? "" : "; ", "rank ", rank, " ", executor.standing());
  });
  return text;
}

// A deadlock: every rank sleeps.
void Simulation::on_deadlock() {
  const std::string text =
      str_cat("deadlock: all ranks sleep and nothing can wake them: ", standing());
  fibers_.each([&](int, Executor& executor) {
    executor.interrupt(std::make_exception_ptr(Error(ErrorKind::CommFailed, text)));
  });
  for (const auto& process : processes_) process->poison(text);
}

namespace {

bool is_echo(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const PeerFailure&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

// An original error before one that only reports a peer's; a killed process reports nothing.
std::exception_ptr Simulation::first_error() const {
  std::vector<int> order = failed_;
  for (int p = 0; p < sim_.processes; ++p) order.push_back(p);
  std::exception_ptr first;
  for (const int p : order) {
    const std::exception_ptr& error = processes_[static_cast<std::size_t>(p)]->error();
    if (!error || (mpi_ != nullptr && mpi_->dead(p))) continue;
    if (!is_echo(error)) return error;
    if (!first) first = error;
  }
  return first;
}

}  // namespace coshard
