#pragma once
// What a graph holds of one communicator: each launch announces its collectives as one, and its
// messages one by one; its end is theirs. Owned by the graph; the rank's thread.
#include <memory>
#include <vector>

#include "runtime/comm/nccl/nccl_communicator.h"
#include "runtime/device/cuda/graph.h"

namespace coshard {

class NcclReplays final : public GraphPart {
 public:
  explicit NcclReplays(std::weak_ptr<NcclCommunicator> communicator)
      : communicator_(std::move(communicator)) {}
  // As announced while it is recorded.
  void keep(const Collective& told);
  void recorded(const std::shared_ptr<GraphExec>& exec) override;
  void launches() override;
  void launched(const std::shared_ptr<Event>& end) override;

 private:
  std::weak_ptr<NcclCommunicator> communicator_;
  std::vector<Collective> told_, messages_;  // the first move to the launch
  std::uint64_t recording_ = 0;              // of those with collectives, the same on all ranks
  Collective launch_;
  std::shared_ptr<NcclFlight> last_;
};

}  // namespace coshard
