// How an operation gets onto the stream, and what is done when it does not come off it.
#include <algorithm>

#include "runtime/comm/nccl/nccl_api.h"
#include "runtime/comm/nccl/nccl_communicator.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/error.h"

namespace coshard {
namespace {

// A host communicator throws another type for what it only learned of a peer, which is kept.
template <class Act>
std::string caught(const Act& act, std::exception_ptr& error) {
  try {
    act();
  } catch (const Error& known) {
    error = std::current_exception();
    return known.what();
  }
  return "";
}

}  // namespace

void NcclCommunicator::settle() {
  NcclCommunicator* busy = domain_->posting;
  if (busy == nullptr || busy->in_flight_.empty()) return;
  NcclFlight& flight = *busy->in_flight_.back();
  const std::int64_t begin_ns = now_ns();
  while (domain_->posting == busy) {
    busy->check(flight, now_ns() - begin_ns);
    if (domain_->posting == busy) sched_yield();
  }
}

void NcclCommunicator::launch(const std::shared_ptr<NcclOperation>& operation) {
  CudaDevice& device = *domain_->device;
  device.make_current();
  operation->path = path_of(operation->plan);
  stream_->wait(*device.compute_stream().record());
  if (!domain_->implicit_order && domain_->last != nullptr) stream_->wait(*domain_->last);
  for (const StridedCopy& copy : operation->plan.before) device.peers()->copy(copy, *stream_);
  if (!operation->plan.round_of.empty()) operation->begun = stream_->record();
  posting_ = operation;
  domain_->posting = this;
  start_round();
  // Most calls are through at once.
  advance();
}

void NcclCommunicator::start_round() {
  NcclOperation& operation = *posting_;
  if (operation.round >= operation.plan.rounds.size()) return complete();
  const auto& calls = operation.plan.rounds[operation.round];
  if (calls.empty()) return;
  NcclFlight& flight = *in_flight_.back();
  std::string what;
  const auto went_well = [&](ncclResult_t status, const char* name) {
    if (what.empty() && !nccl_went_well(status))
      what = cat(name, ": ", nccl_text(status, handle_->comm()));
    return what.empty();
  };
  const bool grouped = calls.size() > 1;
  if (!grouped || went_well(nccl().GroupStart(), "ncclGroupStart")) {
    for (const NcclCall& one : calls) {
      if (!what.empty()) break;
      went_well(call(one), to_string(one.kind));
    }
    // A group is closed also when a call in it failed.
    if (grouped) went_well(nccl().GroupEnd(), "ncclGroupEnd");
  }
  if (!what.empty()) give_up(flight, ErrorKind::CommFailed, what);
}

ncclResult_t NcclCommunicator::call(const NcclCall& c) {
  const NcclApi& api = nccl();
  const auto count = static_cast<std::size_t>(c.count);
  ncclComm_t comm = handle_->comm();
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

// Until NCCL says that the round is on the stream, nothing else may be put there.
bool NcclCommunicator::advance() {
  while (posting_ != nullptr) {
    const ncclResult_t state = handle_->state();
    if (state == ncclInProgress) return false;
    if (state != ncclSuccess)
      give_up(*in_flight_.back(), ErrorKind::CommFailed, nccl_text(state, handle_->comm()));
    NcclOperation& operation = *posting_;
    if (!operation.plan.round_of.empty()) operation.rounds.push_back(stream_->record());
    ++operation.round;
    start_round();
  }
  return true;
}

void NcclCommunicator::complete() {
  for (const StridedCopy& copy : posting_->plan.after)
    domain_->device->peers()->copy(copy, *stream_);
  posting_->done = stream_->record();
  domain_->last = posting_->done;
  if (size() > 1 && posting_->path != kCopyEngine)
    domain_->device->reserve_multiprocessors(kNcclMultiprocessors, posting_->done);
  domain_->posting = nullptr;
  posting_.reset();
}

void NcclCommunicator::check_announced(NcclFlight& flight, std::int64_t waited_ns) {
  std::exception_ptr error;
  const std::string cause = caught([&] { flight.announced.state()->check(waited_ns); }, error);
  if (error == nullptr) return;
  setup_->poison(cause);
  const std::string rest = abort();
  if (rest.empty()) std::rethrow_exception(error);
  fail(ErrorKind::CommFailed, cat(cause, "; ", rest));
}

// Of one that has not come off the stream after a wait of the host of so long.
void NcclCommunicator::check(NcclFlight& flight, std::int64_t waited_ns) {
  check_announced(flight, waited_ns);
  if (!handle_->alive()) return;
  if (posting_ != nullptr) {
    advance();
  } else if (const ncclResult_t state = handle_->state(); !nccl_went_well(state)) {
    give_up(flight, ErrorKind::CommFailed, nccl_text(state, handle_->comm()));
  }
  const bool over = flight.operation->done != nullptr && flight.operation->done->query();
  if (timeout_ns_ > 0 && waited_ns >= timeout_ns_ && !over)
    give_up(flight, ErrorKind::Timeout,
            cat("timeout after ", static_cast<double>(waited_ns) / 1e9,
                " s: all ranks have called it, ",
                flight.operation->done == nullptr ? "and NCCL has not taken it"
                                                  : "and the device has not done it"));
}

void NcclCommunicator::look(std::int64_t waited_ns) {
  if (!handle_->alive()) {
    in_flight_.clear();  // whoever waited for them knows
    return;
  }
  flush_messages();
  // An operation of a communicator that has failed may come off the stream without having been
  // done, so the question comes first.
  while (!in_flight_.empty()) {
    const std::shared_ptr<NcclFlight> oldest = in_flight_.front();
    check(*oldest, waited_ns);
    if (oldest->operation->done == nullptr || !oldest->operation->done->query()) return;
    in_flight_.pop_front();
  }
}

void NcclCommunicator::give_up(NcclFlight& flight, ErrorKind kind, const std::string& cause) {
  const std::string text = cat(text_of(flight), " on rank ", rank(), " failed: ", cause);
  control_->poison(text);
  setup_->poison(text);
  const std::string rest = abort();
  fail(kind, rest.empty() ? text : cat(text, "; ", rest));
}

}  // namespace coshard
