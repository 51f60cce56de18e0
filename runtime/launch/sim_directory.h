#pragma once
// The directory of a simulated process: MPI and liveness detection are simulated. Owned by its run;
// all on the single thread of the simulation.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/local/thread_group.h"
#include "runtime/comm/mpi/mpi_ranks.h"
#include "runtime/launch/rank_directory.h"

namespace coshard {

class SimDirectory final : public RankDirectory {
 public:
  // What it needs from the simulation.
  struct Hooks {
    std::function<void(const Notice&)> say;  // to the other processes: delayed, never lost
    std::function<bool()> note_failed;       // whether this process failed first
    std::function<void()> sleep;             // until awake() of the process is called
    std::function<bool()> all_ended;         // whether all ranks' programs have ended
    std::function<void()> gone;              // the directory is being destroyed
  };
  SimDirectory(const WorldOptions& options, int processes, const MpiApi& api, Hooks hooks);
  ~SimDirectory() override;

  int size() const override { return size_; }
  const std::vector<int>& here() const override { return here_; }
  ThreadGroup* thread_group() override { return &thread_group_; }
  std::shared_ptr<Communicator> control(int rank) override {
    return thread_group_.communicator(rank);
  }
  void fail(const std::string& cause) override;
  void on_failure(std::function<void(const std::string&)> told) override;
  bool reports_failure() override { return first_; }
  void count_in(DeadlockDetector&) override {}
  void leave(int rank) override;
  void end() override;
  bool alive(int rank) const override { return !thread_group_.left(rank); }
  std::string last_seen(int rank) const override { return thread_group_.last_seen(rank); }

  // A notice from another process.
  void heard(const Notice& notice);
  void lost(int process, const std::string& why);
  // This process was killed.
  void killed(const std::string& why);

 private:
  void heard(const std::string& cause);
  bool failed_now();
  std::string who(int process) const;

  Hooks hooks_;
  int per_process_, size_;
  std::shared_ptr<MpiEngine> engine_;
  std::shared_ptr<MpiRanks> ranks_;
  ThreadGroup thread_group_;
  std::vector<int> here_;
  bool failed_ = false, first_ = false;
  std::function<void(const std::string&)> told_;
  std::string early_;  // a failure before told_ was set
};

}  // namespace coshard
