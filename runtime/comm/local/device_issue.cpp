// A LocalCommunicator on devices that queue their work: what a rank brings when it issues, and the
// last rank's part.
#include "runtime/comm/collective.h"
#include "runtime/comm/local/local_communicator.h"
#include "runtime/comm/local/local_work.h"
#include "runtime/device/graph.h"
#include "runtime/error.h"

namespace coshard {

// With the queueing mutex held.
void LocalGroup::queue_or_poison(DeviceJob& job, std::size_t side, const Awaited& what) {
  if (poisoned()) return;
  for (const DeviceSide& its : job.sides)
    if (its.device == nullptr) {
      poison(cat(what.text(title()), ": rank ", its.rank, " is not on a device like ",
                 job.sides[side].device->name()));
      return;
    }
  const std::shared_ptr<Device> own = job.sides[side].device;
  try {
    job.queue(weak_from_this(), what, job.sides[side].timeout_ns);
    own->peers()->make_current();
  } catch (const std::exception& error) {
    poison(
        cat("rank ", what.world_rank, " could not queue ", what.text(title()), ": ", error.what()));
    throw;
  }
}

void LocalGroup::queue_on_devices(Job& job, int rank) {
  const auto mine = static_cast<std::size_t>(rank);
  {
    const std::scoped_lock lock(devices_.queueing());
    queue_or_poison(*job.device, mine,
                    Awaited(job.entries[mine].args, job.sequence, members_[mine]));
  }
  if (!poisoned()) finish(job);
}

void LocalGroup::queue_on_devices(Message& message, int rank) {
  const bool sends = message.source == rank;
  queue_or_poison(*message.device, sends ? 0 : 1,
                  Awaited(sends ? message.send : message.recv, message.number,
                          members_[static_cast<std::size_t>(rank)]));
  if (poisoned()) return;
  message.state.store(MessageState::Over);
  ring(message.has_dependents);
}

void LocalCommunicator::use(std::shared_ptr<Device> device) {
  if (group_->registry()->link)
    fail(ErrorKind::Unsupported,
         cat("link ", to_string(*group_->registry()->link), ": ", device->name(),
             " moves its own data; a link is emulated for ranks on the cpu"));
  try {
    group_->devices().add(device);
  } catch (const Error& error) {
    group_->poison(cat("rank ", world_rank(), " of ", group_->title(), ": ", error.what()));
    throw;
  }
  stream_ = device->make_stream(StreamKind::Communication);
  message_stream_ = device->make_stream(StreamKind::Communication);
  device_ = std::move(device);
}

// The buffers go to the work, which gives them back in the order of the compute stream.
DeviceSide LocalCommunicator::device_side(Collective& collective, Kept& kept) {
  require_not_recording(*device_, "a collective of the local communicator", "meet other ranks");
  DeviceSide side;
  const std::int64_t bytes = scratch_bytes(collective, size(), rank_);
  if (bytes > 0) {
    kept[2] = device_->make_buffer(static_cast<std::size_t>(bytes));
    side.scratch = kept[2]->data();
  }
  kept[0] = std::move(collective.keep_send);
  kept[1] = std::move(collective.keep_recv);
  side.ready = device_->compute_stream().record();
  side.device = device_;
  side.stream = is_point_to_point(collective.kind) ? message_stream_ : stream_;
  side.rank = world_rank();
  side.timeout_ns = timeout_ns_;
  return side;
}

std::shared_ptr<WorkState> LocalCommunicator::issue_message_on_device(Collective collective) {
  Kept kept;
  DeviceSide side = device_side(collective, kept);
  const std::size_t mine = collective.kind == CollectiveKind::Send ? 0 : 1;
  std::shared_ptr<MessageWork> work;  // its end takes the lock
  // Held until it is queued, so that the messages of a pair are queued in their order.
  const std::scoped_lock lock(group_->devices().queueing());
  bool both = false;
  std::shared_ptr<Message> message = group_->mailbox().post(collective, rank_, both);
  if (message->device == nullptr) message->device = std::make_shared<DeviceJob>(2);
  messages_.push_back(message);
  work = std::make_shared<MessageWork>(shared_from_this(), collective, message);
  tell_issue(*work, collective, message->number);
  side.args = mine == 0 ? &message->send : &message->recv;
  message->device->sides[mine] = std::move(side);
  work->on_devices(message->device, mine, std::move(kept));
  if (both && agree(*message)) group_->queue_on_devices(*message, rank_);
  return work;
}

}  // namespace coshard
