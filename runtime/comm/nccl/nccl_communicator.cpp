// What one rank asks for, on its way to NCCL.
#include "runtime/comm/nccl/nccl_communicator.h"

#include <algorithm>
#include <atomic>

#include "runtime/comm/collective.h"
#include "runtime/comm/nccl/nccl_api.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/error.h"

namespace coshard {
namespace {

// Apart from the ids of communicators through host memory.
std::atomic<std::uint64_t> nccl_event_id{std::uint64_t{1} << 63};

constexpr std::size_t kRemembered = 1024;  // flights of which a stuck wait can tell

}  // namespace

std::string NcclCommunicator::title() const { return cat(name(), "[", size(), "]"); }

std::shared_ptr<WorkState> NcclCommunicator::start(Collective collective) {
  const bool message = is_point_to_point(collective.kind);
  if (!message) {
    flush_messages();
    settle();
  }
  const std::shared_ptr<NcclFlight> flight = announce(collective);
  if (Observer* watching = slot_ ? *slot_ : nullptr) {
    CommEvent& event = flight->event;
    event.id = ++nccl_event_id;
    event.sequence = flight->number;
    event.kind = collective.kind;
    event.dtype = collective.dtype;
    event.bytes = larger_bytes(collective, size(), rank());
    event.communicator = name();
    event.label = collective.label;
    event.where = collective.where;
    watching->issued(event, now_ns());
  }
  auto work = std::make_shared<NcclWork>(shared_from_this(), flight);
  NcclOperation& operation = *flight->operation;
  operation.keeps = {std::move(collective.keep_send), std::move(collective.keep_recv)};
  // Ranks that disagree, or a failure before: nothing is handed over, and the wait says it.
  if (!handle_->alive()) return work;
  operation.plan = plan(collective, operation);
  track(flight);
  if (message) {
    messages_.push_back(flight);
  } else {
    launch(flight->operation);
  }
  return work;
}

// The same collective on the control communicator, which moves nothing.
std::shared_ptr<NcclFlight> NcclCommunicator::announce(const Collective& collective) {
  auto flight = std::make_shared<NcclFlight>();
  flight->kind = collective.kind;
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
  told.announced = true;
  told.keep_send = told.keep_recv = nullptr;
  flight->announced = control_->issue(std::move(told));
  if (!handle_->alive()) return flight;
  try {
    flight->announced.state()->check(0);
  } catch (const Error&) {
    abort();  // the wait throws it again
  }
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
  if (in_flight_.size() >= kRemembered) {
    // Dropped work handles, or many that are late: the compute stream is to be past what they use.
    const std::shared_ptr<NcclOperation>& oldest = in_flight_.front()->operation;
    if (oldest->done != nullptr) domain_->device->compute_stream().wait(*oldest->done);
    in_flight_.pop_front();
  }
  in_flight_.push_back(flight);
}

void NcclCommunicator::flush_messages() {
  if (messages_.empty()) return;
  settle();
  const auto together = std::make_shared<NcclOperation>();
  auto& calls = together->plan.rounds.emplace_back();
  for (const auto& flight : messages_) {
    for (const auto& round : flight->operation->plan.rounds)
      calls.insert(calls.end(), round.begin(), round.end());
    auto& keeps = flight->operation->keeps;
    together->keeps.insert(together->keeps.end(), keeps.begin(), keeps.end());
    flight->operation = together;
  }
  messages_.clear();
  launch(together);
}

std::string NcclCommunicator::text_of(const NcclFlight& flight) const {
  const std::string label = flight.label.empty() ? "" : cat(" (", flight.label, ")");
  return cat(to_string(flight.kind), " #", flight.number, " on ", title(), label,
             place_text(flight.place));
}

void NcclCommunicator::wait(NcclFlight& flight) {
  if (flight.settled) return;
  const std::int64_t begin_ns = flight.event.id != 0 ? now_ns() : 0;
  if (Observer* watching = slot_ && flight.event.id != 0 ? *slot_ : nullptr)
    watching->awaiting(flight.event);
  block(flight, [&] { return flight.operation->done != nullptr; });
  domain_->device->compute_stream().wait(*flight.operation->done);
  settled(flight, begin_ns);
}

template <class Done>
void NcclCommunicator::block(NcclFlight& flight, const Done& done) {
  flush_messages();
  check_announced(flight, 0);
  const std::int64_t begin_ns = now_ns();
  while (!done()) {
    check(flight, now_ns() - begin_ns);
    if (!done()) sched_yield();
  }
}

// The stream is in order: what was before this is over with it. One that is not there any more was
// over before.
void NcclCommunicator::settled(NcclFlight& flight, std::int64_t begin_ns) {
  flight.settled = true;
  const auto here = std::ranges::find(in_flight_, &flight, [](const auto& f) { return f.get(); });
  if (here != in_flight_.end())
    for (auto earlier = in_flight_.begin(); earlier != here; ++earlier)
      (*earlier)->operation->keeps.clear();
  flight.operation->keeps.clear();
  if (flight.event.id == 0) return;
  if (Observer* watching = slot_ ? *slot_ : nullptr) {
    const std::int64_t now = now_ns();
    watching->ready(flight.event, begin_ns, now, now);
  }
}

void NcclCommunicator::wait_part(NcclFlight& flight, int part) {
  const NcclOperation& operation = *flight.operation;
  if (operation.plan.round_of.empty() || flight.settled) return wait(flight);
  const int round = operation.plan.round_of[static_cast<std::size_t>(part)];
  block(flight, [&] {
    return operation.done != nullptr || static_cast<int>(operation.rounds.size()) > round;
  });
  const bool last = round == static_cast<int>(operation.plan.rounds.size()) - 1;
  if (last && operation.done == nullptr) return wait(flight);
  const Event& event = round < 0 ? *operation.begun
                       : last    ? *operation.done
                                 : *operation.rounds[static_cast<std::size_t>(round)];
  domain_->device->compute_stream().wait(event);
}

bool NcclCommunicator::part_there(NcclFlight& flight, int part) {
  if (flight.settled && flight.operation->done == nullptr) return true;
  try {
    flush_messages();
    check(flight, 0);
    const NcclOperation& operation = *flight.operation;
    if (part < 0 || operation.plan.round_of.empty())
      return operation.done != nullptr && operation.done->query();
    const int round = operation.plan.round_of[static_cast<std::size_t>(part)];
    if (round < 0) return operation.begun != nullptr && operation.begun->query();
    const auto at = static_cast<std::size_t>(round);
    if (at + 1 == operation.plan.rounds.size())
      return operation.done != nullptr && operation.done->query();
    return at < operation.rounds.size() && operation.rounds[at]->query();
  } catch (const Error&) {
    return true;  // the wait throws it
  }
}

}  // namespace coshard
