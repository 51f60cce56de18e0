#pragma once
// What is in flight on an NCCL communicator. A flight is what one issue asked for; an operation is
// what NCCL was given, for one collective or for several messages at once. Rank's thread; the
// watchdog looks at what the communicator's mutex guards.
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include <coshard/runtime/comm/communicator.h>
#include "runtime/comm/nccl/nccl_plan.h"

namespace coshard {

class NcclCommunicator;

// What nccl_path() says of a collective that takes no SMs.
constexpr std::string_view kCopyEngine = "copy engine";

// Life: waiting to be handed over -> round after round -> on the stream, with the event `done`
// behind it.
struct NcclOperation {
  NcclPlan plan;
  std::shared_ptr<Event> begun;                    // after plan.before; only with round_of
  std::vector<std::shared_ptr<Event>> rounds;      // after each; only with round_of
  std::shared_ptr<Event> done;                     // mutex; null: not on the stream
  std::vector<std::shared_ptr<const void>> keeps;  // let go once the compute stream is past it
  std::string_view path;
};

struct NcclFlight {
  CollectiveKind kind{};
  std::string_view label;
  Place place;
  std::uint64_t number = 0;
  Work announced;                            // on the control communicator
  std::shared_ptr<NcclOperation> operation;  // mutex
  std::int64_t awaited_ns = 0;  // mutex: since when the compute stream waits for it; 0: it does not
  CommEvent event;              // id 0: nobody watched the issue
  bool settled = false;
};

class NcclWork final : public WorkState {
 public:
  NcclWork(std::shared_ptr<NcclCommunicator> communicator, std::shared_ptr<NcclFlight> flight)
      : communicator_(std::move(communicator)), flight_(std::move(flight)) {}
  // The operation is over on the device, or failed.
  bool ready() override;
  // The compute stream waits for it, the host does not.
  void wait() override;
  int parts() const override;
  bool part_ready(int part) override;
  void wait_part(int part) override;
  bool waits_for_peers() const override { return false; }
  Look look(int) override { return Look::Over; }
  void given_up() override { flight_->announced.state()->given_up(); }
  std::string_view path() const { return flight_->operation->path; }

 private:
  void check_part(int part) const;
  std::shared_ptr<NcclCommunicator> communicator_;
  std::shared_ptr<NcclFlight> flight_;
};

}  // namespace coshard
