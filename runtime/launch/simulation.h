#pragma once
// A simulation: fibers on one thread for the ranks of all its processes, for the network, and for
// the main function of each process. Owned by simulate().
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <coshard/runtime/launch/simulate.h>
#include "runtime/comm/local/transfer_clock.h"
#include "runtime/comm/mpi/notice.h"
#include "runtime/launch/draw.h"
#include "runtime/launch/rank_fibers.h"
#include "runtime/launch/rank_host.h"
#include "runtime/launch/sim_directory.h"
#include "runtime/launch/simulated_mpi.h"

namespace coshard {

class Simulation;

class SimProcess final : public RankHost, public TransferClock {
 public:
  SimProcess(Simulation& all, int number, int ranks);
  // The program of the ranks, which wait until the process has begun.
  const RankProgram& ranks() const { return ranks_; }
  std::unique_ptr<RankDirectory> make_directory(const WorldOptions& options, SimulatedMpi* mpi);
  // Its main function.
  void live(Parker& parker, const WorldOptions& options, std::unique_ptr<RankDirectory> directory,
            const Program& program);
  void awake();  // wakes its main function
  void wake();   // wakes its ranks
  // Something has arrived: waiters poll now, a progress thread soon.
  void arrived();
  void heard(const Notice& notice);
  void died(const std::string& why);
  void peer_died(int process, const std::string& why);
  void poison(const std::string& cause);
  const std::exception_ptr& error() const { return error_; }

  // RankHost
  Parker& parker() override { return main_; }
  void run(std::span<const int> here, ThreadGroup& group, const RankProgram& program) override;

  // TransferClock
  bool go_on() override;
  bool pause() override;
  void offered() override { progress_soon(); }

 private:
  // Where its main function sleeps, which stays current meanwhile.
  class MainParker final : public Parker {
   public:
    void park(std::int64_t deadline_ns, boost::asio::io_context* asio = nullptr) override;
    void unpark() noexcept override {
      if (fiber != nullptr) fiber->unpark();
    }
    std::int64_t now() const override { return fiber->now(); }
    bool shares_its_thread() const override { return true; }

    Parker* fiber = nullptr;  // null: it has not begun
  };
  void progress_soon();
  void progress();

  Simulation& all_;
  int number_;
  int alive_;  // ranks
  RankProgram ranks_;
  const RankProgram* begun_ = nullptr;
  bool over_ = false;
  std::vector<Parker*> early_;  // ranks that wait for the process to begin
  SimDirectory* directory_ = nullptr;
  ThreadGroup* group_ = nullptr;
  MainParker main_;
  std::int64_t progress_ns_ = 0;  // when progress is due; 0: it is not
  bool progressing_ = false;      // and the main function waits for it to end
  std::exception_ptr error_;
};

class Simulation final : public FiberPolicy {
 public:
  Simulation(std::uint64_t seed, const SimOptions& sim, const WorldOptions& world);

  // run_ranks in each process; throws the error of the first one that failed.
  void run(const WorldOptions& options, const Program& program);

  // FiberPolicy
  std::size_t pick(std::size_t runnable) override;
  bool virtual_time() const override { return true; }
  std::int64_t turn_ns() const override { return sim_.turn.count(); }

  void tell(int rank, std::string what) {
    if (sim_.on_event) sim_.on_event({fibers_.thread().now(), rank, std::move(what)});
  }
  const SimOptions& options() const { return sim_; }

 private:
  friend class SimProcess;
  SimulatedMpiOptions network_of(std::uint64_t seed);
  std::int64_t now() { return fibers_.thread().now(); }
  std::int64_t later(std::chrono::nanoseconds most);
  void at(std::int64_t time_ns, std::function<void()> event);
  bool go_on();
  void carry(Parker& parker);
  void tell_later(int from, int to, std::function<void()> told);
  void pass_on(int from, const std::function<void(SimProcess&)>& told);
  void say(int from, const Notice& notice);
  void died(int dead);
  bool note_failed(int process);
  void rank_ended();
  void on_deadlock();
  std::string standing();
  std::exception_ptr first_error() const;

  Draw draw_;
  const SimOptions& sim_;
  int per_process_;
  int alive_;  // ranks
  RankFibers fibers_;
  std::unique_ptr<SimulatedMpi> mpi_;  // null: one process
  std::vector<std::unique_ptr<SimProcess>> processes_;
  std::vector<int> failed_;  // processes, in order of failure
  Parker* network_ = nullptr;
  std::multimap<std::int64_t, std::function<void()>> events_;
  std::map<std::pair<int, int>, std::int64_t> said_;  // (from, to): when the last notice arrives
  std::int64_t next_transfer_ns_ = 0;                 // 0: none is deferred
  std::int64_t turns_ = 0;
};

}  // namespace coshard
