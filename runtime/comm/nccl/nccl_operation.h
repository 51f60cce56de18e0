#pragma once
// Work in flight on an NCCL communicator. A flight is one issued collective or message; an
// operation is one submission to NCCL, for one collective or several messages. Rank's thread; the
// watchdog reads only what the communicator's mutex guards.
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <coshard/runtime/comm/communicator.h>
#include "runtime/comm/nccl/nccl_plan.h"

namespace coshard {

class NcclCommunicator;

// The nccl_path() of a collective that uses no SMs.
constexpr std::string_view kCopyEngine = "copy engine";

// Life cycle: pending -> issued round by round -> on the stream, followed by the event `done`.
struct NcclOperation {
  NcclPlan plan;
  std::shared_ptr<Event> started;                  // before plan.before; only if it is observed
  std::shared_ptr<Event> begun;                    // after plan.before; only with round_of
  std::vector<std::shared_ptr<Event>> rounds;      // after each; only with round_of
  std::shared_ptr<Event> done;                     // mutex; null: not on the stream
  std::vector<std::shared_ptr<const void>> keeps;  // released once the compute stream is past it
  std::string_view path;
};

struct NcclFlight {
  CollectiveKind kind{};
  std::string_view label;
  CallLocation place;
  std::uint64_t number = 0;
  std::optional<std::int64_t> limit;         // WaitLimit where it was issued
  Work announced;                            // on the control communicator
  std::shared_ptr<NcclOperation> operation;  // mutex
  std::int64_t awaited_ns = 0;  // mutex: since when the compute stream waits for it; 0: it doesn't
  CommEvent event;              // id 0: the issue was not observed
  bool settled = false;
};

class NcclWork final : public WorkState {
 public:
  NcclWork(std::shared_ptr<NcclCommunicator> communicator, std::shared_ptr<NcclFlight> flight)
      : communicator_(std::move(communicator)), flight_(std::move(flight)) {}
  // For a query: whether the operation is complete on the device, or has failed.
  Poll poll(Poller by, int part) override;
  // Makes the compute stream wait for it; the host does not block.
  void wait(int part) override;
  void note(WorkEvent event) override {
    if (event == WorkEvent::Abandoned) flight_->announced.state()->note(event);
  }
  WorkInfo info(int) const override { return {.waits_for_peers = false}; }
  std::string_view path() const { return flight_->operation->path; }

 private:
  int parts() const;
  void check_part(int part) const;
  std::shared_ptr<NcclCommunicator> communicator_;
  std::shared_ptr<NcclFlight> flight_;
};

}  // namespace coshard
