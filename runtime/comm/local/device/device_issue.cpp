// A LocalCommunicator on devices that queue their work: the issue by each rank, the queueing by the
// last one, and the wait.
#include <coshard/runtime/coro/wait_limit.h>
#include <coshard/runtime/error.h>
#include "runtime/comm/collective.h"
#include "runtime/comm/local/local_communicator.h"
#include "runtime/comm/local/local_work.h"
#include "runtime/device/graph.h"
#include "runtime/device/stream_times.h"

namespace coshard {

// With the queueing mutex held.
void LocalGroup::queue_or_poison(DeviceOp& op, std::size_t side, const CollectiveInfo& what) {
  if (poisoned()) return;
  for (const DeviceSide& its : op.sides)
    if (its.device == nullptr) {
      poison(str_cat(what.text(title()), ": rank ", its.rank,
                     " is not on the same kind of device as ", op.sides[side].device->name()));
      return;
    }
  const std::shared_ptr<Device> own = op.sides[side].device;
  try {
    op.queue(weak_from_this(), what, op.sides[side].timeout_ns);
    own->peers()->make_current();
  } catch (const std::exception& error) {
    poison(str_cat("rank ", what.world_rank, " failed to queue ", what.text(title()), ": ",
                   error.what()));
    throw;
  }
}

void LocalGroup::queue_on_devices(CollectiveOp& op, int rank) {
  const auto mine = static_cast<std::size_t>(rank);
  {
    const std::scoped_lock lock(devices_.queueing());
    queue_or_poison(*op.device, mine,
                    CollectiveInfo(op.entries[mine].args, op.sequence, members_[mine]));
  }
  if (!poisoned()) finish(op);
}

void LocalGroup::queue_on_devices(Message& message, int rank) {
  const bool sends = message.source == rank;
  queue_or_poison(*message.device, sends ? 0 : 1,
                  CollectiveInfo(sends ? message.send : message.recv, message.number,
                                 members_[static_cast<std::size_t>(rank)]));
  if (poisoned()) return;
  message.state.store(MessageState::Over);
  ring(message.has_dependents);
}

void LocalCommunicator::use(std::shared_ptr<Device> device) {
  if (group_->registry()->link)
    fail(ErrorKind::Unsupported,
         str_cat("link ", to_string(*group_->registry()->link), ": ", device->name(),
                 " moves its own data; links are emulated only between ranks on the cpu"));
  try {
    group_->devices().add(device);
  } catch (const Error& error) {
    group_->poison(str_cat("rank ", world_rank(), " of ", group_->title(), ": ", error.what()));
    throw;
  }
  stream_ = device->make_stream(StreamKind::Communication);
  message_stream_ = device->make_stream(StreamKind::Communication);
  device_ = std::move(device);
}

// The buffers move to the work handle, which releases them in compute stream order.
DeviceSide LocalCommunicator::device_side(Collective& collective) {
  require_not_recording(*device_, "a collective of the local communicator",
                        "synchronize with other ranks");
  DeviceSide side;
  const std::int64_t bytes = scratch_bytes(collective, size(), rank_);
  if (bytes > 0) {
    side.kept[2] = device_->make_buffer(static_cast<std::size_t>(bytes));
    side.scratch = side.kept[2]->data();
  }
  side.kept[0] = std::move(collective.keep_send);
  side.kept[1] = std::move(collective.keep_recv);
  side.ready = device_->compute_stream().record();
  side.device = device_;
  side.stream = is_point_to_point(collective.kind) ? message_stream_ : stream_;
  side.rank = world_rank();
  side.timeout_ns = WaitLimit::here().value_or(timeout_ns_);
  side.timed = observer() != nullptr && !collective.unobserved;
  return side;
}

void LocalWork::bring(std::shared_ptr<DeviceOp> op, std::size_t place, DeviceSide side,
                      const Collective& args) {
  kept_ = std::move(side.kept);
  side.args = &args;
  op->sides[place] = std::move(side);
  side_ = place;
  device_op_ = std::move(op);
}

void LocalWork::order_after(const std::shared_ptr<Event>& end, int part) {
  Device& device = *communicator_->device();
  Stream& compute = device.compute_stream();
  const DeviceSide& side = device_op_->sides[side_];
  const std::shared_ptr<Event> reached = side.timed ? compute.record_timed() : nullptr;
  const std::shared_ptr<Event>& own = part < 0 && side.over != nullptr ? side.over : end;
  compute.wait(*end);
  if (own != end) compute.wait(*own);  // so that its time is known when later work is complete
  if (!looked_after_) device.watch(device_op_);
  looked_after_ = true;
  if (reached != nullptr) device.times().stalled(event_, reached, own);
}

}  // namespace coshard
