#include "runtime/comm/local/local_communicator.h"

#include <time.h>

#include <algorithm>
#include <tuple>

#include <coshard/runtime/coro/rank_context.h>
#include <coshard/runtime/coro/wait_limit.h>
#include <coshard/runtime/error.h>
#include "runtime/comm/collective.h"
#include "runtime/comm/local/host/chunks.h"
#include "runtime/comm/local/host/progress_threads.h"
#include "runtime/comm/local/local_work.h"
#include "runtime/comm/make_communicator.h"
#include "runtime/device/graph.h"

namespace coshard {
namespace {

// The rank's clock to within a few milliseconds, at a quarter of the cost.
std::int64_t coarse_now_ns() {
  const Parker& parker = RankContext::current().parker();
  if (parker.shares_its_thread()) return parker.now();  // may be virtual time
#ifdef CLOCK_MONOTONIC_COARSE
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
#else
  return now_ns();
#endif
}

}  // namespace

LocalCommunicator::LocalCommunicator(std::shared_ptr<LocalGroup> group, int rank)
    : group_(std::move(group)), rank_(rank) {}

LocalCommunicator::~LocalCommunicator() {
  group_->leave(rank_);
  for (const InFlight& flight : in_flight_) flight.op->release();
}

CommEvent LocalCommunicator::event_of(const Collective& collective, std::uint64_t sequence) {
  CommEvent event;
  event.id = group_->id() << 40 | ++events_;
  event.sequence = sequence;
  event.kind = collective.kind;
  event.dtype = collective.dtype;
  event.bytes = larger_bytes(collective, size(), rank_);
  event.communicator = group_->name();
  event.label = collective.label;
  event.where = collective.where;
  event.queued = device_ != nullptr;
  if (const LinkQueue* link = group_->link()) event.link = link->text();
  return event;
}

void LocalCommunicator::note_issue(CollectiveKind kind) {
  RankState& state = group_->state(rank_);
  state.kind.store(kind, std::memory_order_relaxed);
  state.issued_ns.store(coarse_now_ns(), std::memory_order_relaxed);
  state.issued.store(issued_, std::memory_order_relaxed);
}

std::shared_ptr<WorkState> LocalCommunicator::start(Collective collective) {
  if (is_point_to_point(collective.kind)) return issue_message(std::move(collective));
  if (collective.control_only && group_->remote() != nullptr)
    return announce(std::move(collective));
  DeviceSide side;  // before it takes a number, since this may throw
  if (device_ != nullptr) side = device_side(collective);
  const std::uint64_t print = fingerprint(collective, size());
  const std::uint64_t sequence = take_number(collective, print);
  if (collective.after != nullptr) collective.after->note(WorkEvent::HasDependent);
  CollectiveOp* op = nullptr;
  if (!group_->poisoned()) {
    help_when_much_is_in_flight();
    op = &group_->join(sequence - announced_, collective.kind);
    const std::int64_t bytes = larger_bytes(collective, size(), rank_);
    in_flight_.push_back({op, bytes});
    bytes_in_flight_ += bytes;
  }
  auto work = std::make_shared<OpWork>(shared_from_this(), collective, sequence, op);
  const bool told = tell_issue(*work, collective, sequence);
  if (device_ != nullptr && op != nullptr) {
    const auto mine = static_cast<std::size_t>(rank_);
    work->bring(op->device, mine, std::move(side), op->entries[mine].args);
  }
  if (op != nullptr) group_->arrive(*op, rank_, std::move(collective), {print, given_up_}, told);
  return work;
}

void LocalCommunicator::make_room() {
  if (group_->remote() == nullptr) return;
  const Announcements& all = group_->announcements();
  for (auto awaited = all.awaited(rank_); awaited && !group_->poisoned();
       awaited = all.awaited(rank_))
    AnnouncedWork(shared_from_this(), all.issued(rank_, *awaited), *awaited).wait_for_room();
}

std::shared_ptr<WorkState> LocalCommunicator::announce(Collective collective) {
  make_room();
  Announcements& all = group_->announcements();
  const std::uint64_t print = fingerprint(collective, size());
  take_number(collective, print);
  auto work = std::make_shared<AnnouncedWork>(shared_from_this(), collective, announced_++);
  tell_issue(*work, collective, announced_ - 1);
  if (!group_->poisoned()) all.issue(rank_, std::move(collective), {print, given_up_});
  return work;
}

// Keeps works that are dropped without a wait from piling up. What moves may be what others wait
// for, without end, so it helps with as many chunks as may be in flight, and then goes on.
void LocalCommunicator::help_when_much_is_in_flight() {
  constexpr std::int64_t kMuch = 32 * 1024 * 1024;
  int helps = kMuch / kChunkBytes, drives = 64;
  for (; bytes_in_flight_ > kMuch && helps-- > 0; retire())
    if (!help_own() && (drives-- == 0 || !group_->drive())) return;
}

void LocalCommunicator::note_given_up(const CollectiveInfo& awaited) {
  const std::uint64_t key = mix(mix(0x9e3779b9, awaited.branch), awaited.number);
  given_up_ += key;
  group_->note_given_up(rank_, key, awaited);
}

std::uint64_t LocalCommunicator::take_number(const Collective& collective, std::uint64_t print) {
  const std::uint64_t sequence = issued_++;
  order_hash_ = mix(mix(order_hash_, print), collective.branch);
  note_issue(collective.kind);
  retire();
  return sequence;
}

std::shared_ptr<WorkState> LocalCommunicator::issue_message(Collective collective) {
  std::erase_if(messages_, [](const auto& message) { return message->over(); });
  if (collective.after != nullptr) collective.after->note(WorkEvent::HasDependent);
  DeviceSide side;
  if (device_ != nullptr) side = device_side(collective);
  std::shared_ptr<MessageWork> work;  // its destructor may take the lock
  // On devices, held until it is queued, so that the messages of a pair are queued in order.
  std::unique_lock lock(group_->devices().queueing(), std::defer_lock);
  if (device_ != nullptr) lock.lock();
  bool both = false;
  std::shared_ptr<Message> message = group_->post(collective, rank_, both);
  messages_.push_back(message);
  work = std::make_shared<MessageWork>(shared_from_this(), collective, message);
  if (tell_issue(*work, collective, message->number))
    message->timed.store(true, std::memory_order_relaxed);
  if (device_ != nullptr) {
    if (message->device == nullptr) message->device = std::make_shared<DeviceOp>(2);
    const bool sends = collective.kind == CollectiveKind::Send;
    work->bring(message->device, sends ? 0 : 1, std::move(side),
                sends ? message->send : message->recv);
  }
  if (!both || !group_->agree(*message)) return work;
  if (device_ != nullptr)
    group_->queue_on_devices(*message, rank_);
  else
    group_->transfer(message);
  return work;
}

std::shared_ptr<Communicator> LocalCommunicator::subgroup(std::span<const int> ranks,
                                                          std::string name) {
  std::vector<int> members;  // world ranks
  int my_rank = -1;
  for (const int r : ranks) {
    CS_REQUIRE(r >= 0 && r < size(), "subgroup ", name, ": rank ", r, " is out of range for ",
               size(), " ranks");
    if (r == rank_) my_rank = static_cast<int>(members.size());
    members.push_back(group_->members()[static_cast<std::size_t>(r)]);
  }
  CS_REQUIRE(my_rank >= 0, "subgroup ", name, ": rank ", rank_, " is not a member");

  const std::shared_ptr<LocalRegistry>& registry = group_->registry();
  std::shared_ptr<LocalGroup> group;
  bool made = false;
  {
    const int turn = subgroups_[members]++;
    const std::scoped_lock lock(registry->mutex);
    const auto place = std::tuple(group_->id(), members, turn);
    LocalRegistry::Pending& pending = registry->pending[place];
    if (pending.group == nullptr) {
      std::uint64_t key = mix(group_->key(), static_cast<std::uint64_t>(turn));
      for (const int r : members) key = mix(key, static_cast<std::uint64_t>(r));
      pending.group = make_group(registry, std::move(members), std::move(name));
      pending.group->set_key(key);
      for (int r = 0; r < pending.group->size(); ++r)
        pending.missing += pending.group->is_here(r) ? 1 : 0;
      made = true;
    }
    group = pending.group;
    if (--pending.missing == 0) registry->pending.erase(place);
  }
  if (made && group->remote() != nullptr) group->remote()->made(group);
  auto communicator = std::make_shared<LocalCommunicator>(std::move(group), my_rank);
  communicator->timeout_ns_ = timeout_ns_;
  communicator->slot_ = slot_;
  if (device_ != nullptr) communicator->use(device_);
  return communicator;
}

bool LocalCommunicator::help_own() {
  for (const InFlight& flight : in_flight_)
    if (group_->help(*flight.op)) return true;
  for (const auto& message : messages_)
    if (help(*message)) return true;
  return false;
}

bool LocalCommunicator::help(Message& message) { return group_->help(message); }

void LocalCommunicator::retire() {
  while (!in_flight_.empty() && in_flight_.front().op->over.load(std::memory_order_acquire)) {
    bytes_in_flight_ -= in_flight_.front().bytes;
    in_flight_.front().op->release();
    in_flight_.pop_front();
  }
}

void LocalCommunicator::abandon() {
  for (const InFlight& flight : in_flight_) group_->abandon(*flight.op, rank_);
  for (const auto& message : messages_) message->abandon();
  if (RemoteRanks* remote = group_->remote()) remote->abandon(*group_);
}

extern const CommunicatorBackend local_communicator_backend;
const CommunicatorBackend local_communicator_backend = {
    "local", [](std::shared_ptr<Communicator> control, const std::shared_ptr<Device>& device) {
      if (device->peers() == nullptr) return control;
      const auto local = std::dynamic_pointer_cast<LocalCommunicator>(control);
      if (local == nullptr)
        fail(ErrorKind::Unsupported, "communicator 'local' joins ranks of one process only");
      local->use(device);
      return control;
    }};

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

}  // namespace coshard
