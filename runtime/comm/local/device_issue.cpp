// A LocalCommunicator on devices that queue their work: what a rank brings when it issues, and the
// last rank's part.
#include "runtime/comm/collective.h"
#include "runtime/comm/local/device_work.h"
#include "runtime/device/graph.h"
#include "runtime/error.h"

namespace coshard {
namespace {

// With the queueing mutex held.
void queue_or_poison(LocalGroup& group, DeviceJob& job, std::size_t side, const Awaited& what) {
  if (group.poisoned()) return;
  for (std::size_t r = 0; r < job.sides.size(); ++r)
    if (job.sides[r].lane == nullptr) {
      group.poison(cat(what.text(group.title()), ": rank ", group.members()[r],
                       " is not on a device like ", job.sides[side].lane->device().name()));
      return;
    }
  PeerEngine& own = job.sides[side].lane->engine();
  try {
    queue(job);
    own.make_current();
  } catch (const std::exception& error) {
    group.poison(cat("rank ", what.world_rank, " could not queue ", what.text(group.title()), ": ",
                     error.what()));
    throw;
  }
}

}  // namespace

void LocalGroup::queue_on_devices(Job& job, int rank) {
  const std::scoped_lock lock(devices_.queueing());
  const auto mine = static_cast<std::size_t>(rank);
  queue_or_poison(*this, *job.device, mine,
                  Awaited(job.entries[mine].args, job.sequence, members_[mine]));
  if (!job.device->queued.load(std::memory_order_relaxed)) return;
  job.over.store(true);
}

void LocalGroup::queue_on_devices(Message& message, int rank) {
  const bool sends = message.source == rank;
  queue_or_poison(*this, *message.device, sends ? 0 : 1,
                  Awaited(sends ? message.send : message.recv, message.number,
                          members_[static_cast<std::size_t>(rank)]));
  message.state.store(MessageState::Over);
}

void LocalCommunicator::use(std::shared_ptr<Device> device) {
  if (group_->registry()->link)
    fail(ErrorKind::Unsupported,
         cat("link ", to_string(*group_->registry()->link), ": ", device->name(),
             " moves its own data; a link is emulated for ranks on the cpu"));
  device_ = std::move(device);
  lane_ = std::make_shared<Lane>(device_);
  group_->devices().add(lane_);
}

std::shared_ptr<Lane> LocalCommunicator::message_lane(const Collective& collective) {
  const bool sends = collective.kind == CollectiveKind::Send;
  std::shared_ptr<Lane>& lane = message_lanes_[{collective.root, sends}];
  if (lane == nullptr) {
    lane = std::make_shared<Lane>(device_);
    group_->devices().add(lane);
  }
  return lane;
}

// The buffers go to the work, which gives them back in the order of the compute stream.
DeviceSide LocalCommunicator::device_side(Collective& collective, std::shared_ptr<Lane> lane,
                                          Kept& kept) {
  DeviceSide side;
  const std::int64_t bytes = scratch_bytes(collective, size(), rank_);
  if (bytes > 0) {
    kept[2] = device_->make_buffer(static_cast<std::size_t>(bytes));
    side.scratch = kept[2]->data();
  }
  kept[0] = std::move(collective.keep_send);
  kept[1] = std::move(collective.keep_recv);
  side.ready = device_->compute_stream().record();
  side.marks = lane->take(marks_of(collective, size()));
  side.lane = std::move(lane);
  return side;
}

std::shared_ptr<WorkState> LocalCommunicator::issue_on_device(Collective collective) {
  require_not_recording(*device_, "a collective of the local communicator", "meet other ranks");
  if (is_point_to_point(collective.kind)) return issue_message_on_device(std::move(collective));
  Kept kept;
  DeviceSide side = device_side(collective, lane_, kept);
  const std::uint64_t print = fingerprint(collective, size());
  const std::uint64_t sequence = take_number(collective, print);
  Job* job = nullptr;
  if (!group_->poisoned()) {
    job = &group_->join(sequence, collective.kind);
    in_flight_.push_back({job, 0});
  }
  const auto mine = static_cast<std::size_t>(rank_);
  auto watch = std::make_shared<DeviceWatch>(*this, collective, sequence, side.marks, job, nullptr);
  auto work = std::make_shared<DeviceWork>(shared_from_this(), lane_, std::move(watch), nullptr,
                                           job != nullptr ? job->device.get() : nullptr, mine,
                                           std::move(kept));
  tell_issue(*work, collective, sequence);
  if (job != nullptr) {
    side.args = &job->entries[mine].args;
    job->device->sides[mine] = std::move(side);
    if (group_->enter(*job, rank_, std::move(collective), {print, given_up_}))
      group_->queue_on_devices(*job, rank_);
  }
  return work;
}

std::shared_ptr<WorkState> LocalCommunicator::issue_message_on_device(Collective collective) {
  std::erase_if(messages_, [](const auto& message) { return message->over(); });
  const std::shared_ptr<Lane> lane = message_lane(collective);
  Kept kept;
  DeviceSide side = device_side(collective, lane, kept);
  const std::size_t mine = collective.kind == CollectiveKind::Send ? 0 : 1;
  std::shared_ptr<DeviceWork> work;  // its end may take the lock
  // Held until it is queued, so that the messages of a pair are queued in their order.
  const std::scoped_lock lock(group_->devices().queueing());
  bool both = false;
  std::shared_ptr<Message> message = group_->mailbox().post(collective, rank_, both);
  if (message->device == nullptr) message->device = std::make_unique<DeviceJob>(2);
  messages_.push_back(message);
  auto watch = std::make_shared<DeviceWatch>(*this, collective, message->number, side.marks,
                                             nullptr, message);
  work = std::make_shared<DeviceWork>(shared_from_this(), lane, std::move(watch), message,
                                      message->device.get(), mine, std::move(kept));
  tell_issue(*work, collective, message->number);
  side.args = mine == 0 ? &message->send : &message->recv;
  message->device->sides[mine] = std::move(side);
  if (both && agree(*message)) group_->queue_on_devices(*message, rank_);
  return work;
}

}  // namespace coshard
