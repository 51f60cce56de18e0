// The path of one rank's collectives to NCCL.
#include "runtime/comm/nccl/nccl_communicator.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include <coshard/runtime/coro/wait_limit.h>
#include <coshard/runtime/error.h>
#include "runtime/comm/collective.h"
#include "runtime/comm/nccl/nccl_api.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/stream_times.h"

namespace coshard {
namespace {

// Disjoint from the event ids of communicators through host memory.
std::atomic<std::uint64_t> nccl_event_id{std::uint64_t{1} << 63};

constexpr std::size_t kRemembered = 1024;  // flights that a stuck wait can report

}  // namespace

std::string NcclCommunicator::title() const { return str_cat(name(), "[", size(), "]"); }

std::shared_ptr<WorkState> NcclCommunicator::start(Collective collective) {
  const bool message = is_point_to_point(collective.kind);
  if (!message) flush_all_messages();
  const std::shared_ptr<NcclFlight> flight = announce(collective);
  if (Observer* watching = slot_ && !collective.unobserved ? *slot_ : nullptr) {
    CommEvent& event = flight->event;
    event.id = ++nccl_event_id;
    event.sequence = flight->number;
    event.kind = collective.kind;
    event.dtype = collective.dtype;
    event.bytes = larger_bytes(collective, size(), rank());
    event.communicator = name();
    event.label = collective.label;
    event.where = collective.where;
    event.queued = true;
    watching->issued(event, now_ns());
  }
  auto work = std::make_shared<NcclWork>(shared_from_this(), flight);
  NcclOperation& operation = *flight->operation;  // not shared yet
  operation.keeps = {std::move(collective.keep_send), std::move(collective.keep_recv)};
  // After a disagreement or an earlier failure, nothing is issued, and the wait reports it.
  if (!handle_->alive()) return work;
  operation.plan = plan(collective, operation);
  track(flight);
  if (!message) {
    launch(*flight);
    return work;
  }
  if (messages_.empty()) domain_->with_messages.push_back(weak_from_this());
  messages_.push_back(flight);
  return work;
}

// Issues the same collective on the control communicator, without data.
std::shared_ptr<NcclFlight> NcclCommunicator::announce(const Collective& collective) {
  auto flight = std::make_shared<NcclFlight>();
  flight->kind = collective.kind;
  flight->limit = WaitLimit::here();
  flight->label = collective.label;
  flight->place = {collective.where, collective.operation, collective.module};
  flight->operation = std::make_shared<NcclOperation>();
  if (is_point_to_point(collective.kind)) {
    flight->number = messages_issued_++;
  } else {
    flight->number = issued_++;
    order_hash_ = mix(order_hash_, fingerprint(collective, size()));
  }
  Collective told = collective;
  told.control_only = true;
  told.keep_send = told.keep_recv = nullptr;
  if (domain_->device->recording()) keep_for_replays(told);
  const std::scoped_lock lock(mutex_);
  flight->announced = control_->issue(std::move(told));
  if (!failed_) look_at(flight->announced, 0);  // a failure is thrown by the wait
  return flight;
}

NcclPlan NcclCommunicator::plan(const Collective& collective, NcclOperation& operation) {
  NcclPlanChoice choice;
  choice.by_parts = domain_->options.by_parts;
  choice.all_to_all = domain_->options.copy_engine && nccl().AlltoAll != nullptr;
  return plan_nccl(collective, size(), rank(), choice, [&](std::size_t bytes) {
    std::shared_ptr<Buffer> buffer = domain_->device->make_buffer(bytes);
    void* data = buffer->data();
    operation.keeps.push_back(std::move(buffer));
    return data;
  });
}

void NcclCommunicator::track(const std::shared_ptr<NcclFlight>& flight) {
  std::shared_ptr<NcclFlight> oldest;  // released without the mutex
  const std::scoped_lock lock(mutex_);
  if (in_flight_.size() >= kRemembered) {
    // Dropped or late work handles: orders the compute stream after their use of buffers.
    oldest = std::move(in_flight_.front());
    const std::shared_ptr<Event>& done = oldest->operation->done;
    if (done != nullptr) domain_->device->compute_stream().wait(*done);
    in_flight_.pop_front();
  }
  in_flight_.push_back(flight);
}

void NcclCommunicator::flush_messages() {
  if (messages_.empty()) return;
  const auto together = std::make_shared<NcclOperation>();
  auto& calls = together->plan.rounds.emplace_back();
  const std::vector<std::shared_ptr<NcclFlight>> messages = std::exchange(messages_, {});
  {
    const std::scoped_lock lock(mutex_);
    for (const auto& flight : messages) {
      for (const auto& round : flight->operation->plan.rounds)
        calls.insert(calls.end(), round.begin(), round.end());
      auto& keeps = flight->operation->keeps;
      together->keeps.insert(together->keeps.end(), keeps.begin(), keeps.end());
      flight->operation = together;
    }
  }
  launch(*messages.back());
}

void NcclCommunicator::flush_all_messages() {
  for (const auto& known : std::exchange(domain_->with_messages, {}))
    if (const auto communicator = known.lock()) communicator->flush_messages();
}

void NcclCommunicator::launch(NcclFlight& flight) {
  NcclOperation& operation = *flight.operation;
  CudaDevice& device = *domain_->device;
  device.make_current();
  operation.path = path_of(operation.plan);
  stream_->wait(*device.compute_stream().record());
  if (!domain_->implicit_order && domain_->last != nullptr) stream_->wait(*domain_->last);
  const bool timed = flight.event.id != 0;
  const auto record = [&] { return timed ? stream_->record_timed() : stream_->record(); };
  if (timed) operation.started = record();
  for (const StridedCopy& copy : operation.plan.before) device.peers()->copy(copy, *stream_);
  const bool by_parts = !operation.plan.round_of.empty();
  if (by_parts) operation.begun = record();
  for (const auto& round : operation.plan.rounds) {
    if (!round.empty()) hand_over(round, flight);
    if (by_parts) operation.rounds.push_back(record());
  }
  for (const StridedCopy& copy : operation.plan.after) device.peers()->copy(copy, *stream_);
  domain_->last = record();
  const std::scoped_lock lock(mutex_);
  operation.done = domain_->last;
}

// The calls of a round form one group, which is closed even if a call in it fails.
void NcclCommunicator::hand_over(const std::vector<NcclCall>& calls, NcclFlight& flight) {
  const char* name = nullptr;
  const ncclResult_t status = handle_->enter([&](ncclComm_t comm) {
    ncclResult_t worst = ncclSuccess;
    const auto went_well = [&](ncclResult_t result, const char* which) {
      if (worst == ncclSuccess && result != ncclSuccess) worst = result, name = which;
      return worst == ncclSuccess;
    };
    const bool grouped = calls.size() > 1;
    if (grouped && !went_well(nccl().GroupStart(), "ncclGroupStart")) return worst;
    for (const NcclCall& one : calls)
      if (!went_well(call(one, comm), to_string(one.kind))) break;
    if (grouped) went_well(nccl().GroupEnd(), "ncclGroupEnd");
    return worst;
  });
  if (status == ncclSuccess) return;
  {
    const std::scoped_lock lock(mutex_);
    const std::string cause = str_cat(name != nullptr ? name : "NCCL", ": ", handle_->text(status));
    failed(ErrorKind::CommFailed, failure_text(flight, cause));
  }
  check(flight);
}

ncclResult_t NcclCommunicator::call(const NcclCall& c, ncclComm_t comm) const {
  const NcclApi& api = nccl();
  const auto count = static_cast<std::size_t>(c.count);
  auto* stream = static_cast<cudaStream_t>(stream_->native());
  switch (c.kind) {
    case NcclCallKind::AllReduce:
      return api.AllReduce(c.send, c.recv, count, c.dtype, c.reduce, comm, stream);
    case NcclCallKind::AllGather:
      return api.AllGather(c.send, c.recv, count, c.dtype, comm, stream);
    case NcclCallKind::ReduceScatter:
      return api.ReduceScatter(c.send, c.recv, count, c.dtype, c.reduce, comm, stream);
    case NcclCallKind::AllToAll: return api.AlltoAll(c.send, c.recv, count, c.dtype, comm, stream);
    case NcclCallKind::Broadcast:
      return api.Broadcast(c.send, c.recv, count, c.dtype, c.peer, comm, stream);
    case NcclCallKind::Reduce:
      return api.Reduce(c.send, c.recv, count, c.dtype, c.reduce, c.peer, comm, stream);
    case NcclCallKind::Send: return api.Send(c.send, count, c.dtype, c.peer, comm, stream);
    case NcclCallKind::Recv: return api.Recv(c.recv, count, c.dtype, c.peer, comm, stream);
  }
  return ncclInvalidUsage;
}

std::string NcclCommunicator::text_of(const NcclFlight& flight) const {
  const std::string label = flight.label.empty() ? "" : str_cat(" (", flight.label, ")");
  return str_cat(to_string(flight.kind), " #", flight.number, " on ", title(), label,
                 location_text(flight.place));
}

void NcclCommunicator::wait(NcclFlight& flight) {
  if (flight.settled) return;
  const std::int64_t begin_ns = flight.event.id != 0 ? now_ns() : 0;
  if (Observer* watching = slot_ && flight.event.id != 0 ? *slot_ : nullptr)
    watching->awaiting(flight.event);
  flush_messages();
  check(flight);
  order_after(flight, flight.operation->done);
  settled(flight, begin_ns);
}

void NcclCommunicator::order_after(const NcclFlight& flight, const std::shared_ptr<Event>& end) {
  CudaDevice& device = *domain_->device;
  const bool timed = flight.event.id != 0;
  const auto reached = timed ? device.compute_stream().record_timed() : nullptr;
  device.compute_stream().wait(*end);
  if (timed) device.times().stalled(flight.event, reached, end);
}

// The stream is in order, so earlier flights are complete with this one. A flight no longer in the
// list was already complete.
void NcclCommunicator::settled(NcclFlight& flight, std::int64_t begin_ns) {
  flight.settled = true;
  {
    const std::scoped_lock lock(mutex_);
    flight.awaited_ns = now_ns();
  }
  const auto here = std::ranges::find(in_flight_, &flight, [](const auto& f) { return f.get(); });
  if (here != in_flight_.end())
    for (auto earlier = in_flight_.begin(); earlier != here; ++earlier)
      (*earlier)->operation->keeps.clear();
  flight.operation->keeps.clear();
  if (flight.event.id == 0) return;
  if (Observer* watching = slot_ ? *slot_ : nullptr) {
    const std::int64_t now = now_ns();
    watching->ready(flight.event, begin_ns, now, now);
    domain_->device->times().ran(flight.event, flight.operation->started, flight.operation->done);
  }
}

void NcclCommunicator::wait_part(NcclFlight& flight, int part) {
  const NcclOperation& operation = *flight.operation;
  if (operation.plan.round_of.empty() || flight.settled) return wait(flight);
  const int round = operation.plan.round_of[static_cast<std::size_t>(part)];
  if (round == static_cast<int>(operation.plan.rounds.size()) - 1) return wait(flight);
  check(flight);
  order_after(flight,
              round < 0 ? operation.begun : operation.rounds[static_cast<std::size_t>(round)]);
}

bool NcclCommunicator::part_there(NcclFlight& flight, int part) {
  try {
    flush_messages();
    check(flight);
    const NcclOperation& operation = *flight.operation;
    const auto& round_of = operation.plan.round_of;
    const int last = static_cast<int>(operation.plan.rounds.size()) - 1;
    const int round =
        part < 0 || round_of.empty() ? last : round_of[static_cast<std::size_t>(part)];
    if (round >= last) return operation.done->query();
    return (round < 0 ? operation.begun : operation.rounds[static_cast<std::size_t>(round)])
        ->query();
  } catch (const Error&) {
    return true;  // the wait throws the error
  }
}

}  // namespace coshard
