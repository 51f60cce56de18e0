// Collectives in a captured step: each launch announces them to the peers again, so that a rank
// that is late, has left or diverges is detected and named as without a graph.
#include <utility>
#include <vector>

#include <coshard/runtime/error.h>
#include "runtime/comm/nccl/nccl_communicator.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/cuda/graph.h"

namespace coshard {

class NcclCommunicator::Replays final : public GraphPart {
 public:
  explicit Replays(std::weak_ptr<NcclCommunicator> communicator)
      : communicator_(std::move(communicator)) {}
  void keep(const Collective& told) { told_.push_back(told); }

  void recorded(const std::shared_ptr<GraphExec>& exec) override {
    if (const auto communicator = communicator_.lock()) communicator->handle_->keep(exec);
  }

  void launches() override {
    const auto communicator = communicator_.lock();
    CS_REQUIRE(communicator != nullptr, "captured step: a communicator it uses was destroyed");
    communicator->flush_all_messages();
    for (const Collective& told : told_) last_ = communicator->announce(told);
    {
      const std::scoped_lock lock(communicator->mutex_);
      if (!communicator->failed_) return;
    }
    communicator->throw_failure();
    const std::scoped_lock lock(communicator->mutex_);
    last_->announced.state()->check(0);  // poisoned: throws
    fail(ErrorKind::CommFailed, communicator->failure_text(*last_, communicator->cause_));
  }

  // The last of them stands for all: it completes with the graph, for which the compute stream
  // waits.
  void launched(const std::shared_ptr<Event>& end) override {
    const auto communicator = communicator_.lock();
    {
      const std::scoped_lock lock(communicator->mutex_);
      last_->operation->done = end;
      last_->awaited_ns = now_ns();
    }
    communicator->replayed_ = end;
    communicator->track(std::exchange(last_, nullptr));
  }

 private:
  std::weak_ptr<NcclCommunicator> communicator_;
  std::vector<Collective> told_;
  std::shared_ptr<NcclFlight> last_;
};

void NcclCommunicator::keep_for_replays(const Collective& told) {
  CudaGraphs& graphs = domain_->device->graphs();
  std::shared_ptr<Replays> replays = replays_.lock();
  if (replays == nullptr || recording_ != graphs.recording()) {
    replays = std::make_shared<Replays>(weak_from_this());
    replays_ = replays;
    recording_ = graphs.recording();
    graphs.add(replays);
  }
  replays->keep(told);
}

}  // namespace coshard
