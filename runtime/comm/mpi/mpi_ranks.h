#pragma once
// The ranks in other processes over MPI: announces what ranks here issue, and transfers data
// between ranks of different processes. One per run; thread-safe.
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "runtime/comm/local/group.h"
#include "runtime/comm/local/remote_ranks.h"
#include "runtime/comm/mpi/mpi_engine.h"
#include "runtime/comm/mpi/notice.h"

namespace coshard {

struct Spread;

// Of what a rank sends or, as a tensor, receives.
MpiEngine::Memory memory_of(const std::shared_ptr<Buffer>& buffer, bool is_tensor);

class MpiRanks final : public RemoteRanks {
 public:
  struct Hooks {
    std::function<void(int rank)> left;                    // a rank elsewhere has left
    std::function<void(const std::string& cause)> failed;  // the run cannot go on
    std::function<void(const PoisonNotice&)> tell_all;     // a group was poisoned here
    std::function<void()> in_flight;                       // see MpiEngine::on_in_flight()
  };
  // `per_process`: ranks per process, numbered in process order. `run`: the run's number, the same
  // in all processes.
  MpiRanks(std::shared_ptr<MpiEngine> engine, int per_process, std::uint64_t run);
  void tell(Hooks hooks);
  // The run is over: from now on no notice is handled and no hook called. Transfers in flight keep
  // this object alive. Not on a thread that drives. `is_latest`: no later run handles notices yet.
  void stop(bool is_latest = true);
  void send_to_all(const Notice& notice);
  // Another process reports that the group was poisoned.
  void poison_group(std::uint64_t key, const std::string& cause);

  bool here(int world_rank) const override { return process_of(world_rank) == engine_->process(); }
  bool together(int one, int other) const override { return process_of(one) == process_of(other); }
  void made(const std::shared_ptr<LocalGroup>& group) override;
  std::shared_ptr<RemoteState> new_state(const LocalGroup& group, const RemoteState* last) override;
  void issued(LocalGroup& group, CollectiveOp& op, int rank) override;
  void arrived(LocalGroup& group, CollectiveOp& op, int rank) override;
  void receive(LocalGroup& group, CollectiveOp& op) override;
  bool armed(LocalGroup& group, CollectiveOp& op) override;
  void summed(LocalGroup& group, CollectiveOp& op) override;
  int posted(LocalGroup& group, const Collective& args, int rank) override;
  void tell(const LocalGroup& group, int to, const Announcement& said) override {
    engine_->send_notice(process_of(group, to), to_bytes(said));
  }
  std::function<void()> carrier(LocalGroup& group,
                                const std::shared_ptr<Message>& message) override;
  void poisoned(const LocalGroup& group, const std::string& cause) override;
  void abandon(const LocalGroup& group) override;
  bool data_move(int world_rank, std::int64_t ns) const override {
    return engine_->data_move(process_of(world_rank), ns);
  }
  bool lately_may_wait(int world_rank) const override {
    return engine_->lately_may_wait(process_of(world_rank));
  }
  bool drive() override { return engine_->drive(); }
  bool drive_while_waiting() override { return engine_->drive_while_waiting(); }
  bool in_flight() const override { return engine_->in_flight() > 0; }

 private:
  int process_of(int world_rank) const { return world_rank / per_process_; }
  std::shared_ptr<const Spread> spread_of(const LocalGroup& group) const;
  bool heard(int from, std::span<const std::byte> bytes);
  template <class OfGroup>
  void heard_of_group(OfGroup notice);
  void heard(LocalGroup& group, IssuedNotice notice);
  int process_of(const LocalGroup& group, int rank) const {
    return process_of(group.members()[static_cast<std::size_t>(rank)]);
  }
  struct Sent {
    int target, tag;
    const void* data;
    std::size_t bytes;
    MpiEngine::Memory memory;  // without an owner: the rank waits until sent
  };
  void send_block(const std::shared_ptr<LocalGroup>& group, CollectiveOp& op, const Sent& sent,
                  std::function<void()> over);
  void* place_for(const LocalGroup& group, const CollectiveOp& op, int source, int target) const;
  void receive_from(LocalGroup& group, CollectiveOp& op, int source);
  void copy_to_others(const std::vector<void*>& results, std::int64_t first, DType dtype,
                      std::size_t bytes);

  std::shared_ptr<MpiEngine> engine_;
  std::atomic<int> borrowed_{0};  // blocks in flight from memory that the engine does not own
  std::atomic<int> copying_{0};   // callbacks writing results, even while the engine halts
  int per_process_;
  std::uint64_t run_;
  Hooks hooks_;
  std::set<int> ahead_;  // processes in a later run; used by the driving thread
  std::mutex order_;     // held while a notice is handled; guards unclaimed_. Before mutex_
  std::map<std::uint64_t, std::vector<Notice>> unclaimed_;     // for groups not created here yet
  std::mutex mutex_;                                           // guards the two below
  std::map<std::uint64_t, std::weak_ptr<LocalGroup>> groups_;  // by key
  std::map<std::uint64_t, std::string> poisoned_;              // likewise: the causes
};

}  // namespace coshard
