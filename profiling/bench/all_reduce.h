#pragma once
// An all_reduce to time.
#include <memory>

#include <coshard/dtensor/distribute/factories.h>
#include <coshard/runtime/launch/world.h>

namespace coshard::bench {

// Issues and awaits an all_reduce of `elements` zeros: in place, as the peers, or out of place.
class AllReduce {
 public:
  AllReduce(World& world, std::int64_t elements, bool in_place = true)
      : communicator_(world.communicator()),
        data_(zeros(world.device(), Shape{elements})),
        result_(in_place ? data_ : zeros(world.device(), Shape{elements})) {
    call_.kind = CollectiveKind::AllReduce;
    call_.extent = elements;
    call_.send = data_.data();
    call_.recv = result_.data();
    call_.keep_send = data_.storage()->buffer;
    call_.keep_recv = result_.storage()->buffer;
  }
  void operator()() const { communicator_->issue(call_).wait(); }

 private:
  std::shared_ptr<Communicator> communicator_;
  Tensor data_, result_;
  Collective call_;
};

}  // namespace coshard::bench
