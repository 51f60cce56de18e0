// Matching and arithmetic of the fake NCCL.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "runtime/comm/local/host/reduce.h"
#include "tests/support/fake_cuda/fake_graphs.h"
#include "tests/support/fake_cuda/fake_nccl.h"
#include "tests/support/fake_cuda/fake_nccl_state.h"

namespace coshard::testing {
namespace nccl_fake {

State& state() {
  static auto* all = new State();  // never destroyed: it is used at exit
  return *all;
}

namespace {

FakeDriver& driver() { return FakeDriver::get(); }

}  // namespace

void complain(const std::string& text) {
  const auto held = driver().lock();
  if (!state().complaints_expected) return driver().complain(text);
  state().complaints.push_back(text);
}

Inside::Inside(ncclComm* comm, const char* name) : comm_(comm) {
  const auto held = driver().lock();
  const auto refuse = [&](const char* why, ncclResult_t status) {
    complain(std::string(name) + why);
    comm_ = nullptr;
    status_ = status;
  };
  if (!state().alive.contains(comm))
    refuse(" on a communicator that is gone", ncclInvalidArgument);
  else if (comm->inside != nullptr)
    refuse(" while another thread is inside the communicator", ncclInvalidUsage);
  else if (comm->polls > 0)
    refuse(" while the communicator is in progress", ncclInvalidArgument);
  else if (comm->revoked)
    comm_ = nullptr, status_ = ncclInvalidUsage;
  else
    comm->inside = name;
}

Inside::~Inside() {
  if (comm_ == nullptr) return;
  const auto held = driver().lock();
  comm_->inside = nullptr;
  state().changed.notify_all();
}

namespace {

std::size_t width_of(ncclDataType_t dtype) {
  switch (dtype) {
    case ncclFloat64:
    case ncclInt64: return 8;
    case ncclFloat32:
    case ncclInt32: return 4;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    default: return 1;
  }
}

DType dtype_of(ncclDataType_t dtype) {
  for (const DType known :
       {DType::F32, DType::F64, DType::BF16, DType::F16, DType::I64, DType::I32, DType::Bool})
    if (coshard::nccl_type(known) == dtype) return known;
  return DType::Bool;
}

Reduce reduction_of(ncclRedOp_t op) {
  for (const Reduce known : {Reduce::Sum, Reduce::Avg, Reduce::Min, Reduce::Max, Reduce::Product})
    if (coshard::nccl_reduction(known) == op) return known;
  return Reduce::Sum;
}

void move(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, bytes);
}

const char* at(const void* base, std::size_t bytes) {
  return static_cast<const char*>(base) + bytes;
}
char* at(void* base, std::size_t bytes) { return static_cast<char*>(base) + bytes; }

// The result, in a separate buffer: a rank's recv may be its send.
std::vector<char> reduced(const Match& match, std::size_t offset, std::size_t count) {
  const Part& first = match.parts[0];
  std::vector<const void*> sources;
  for (const Part& part : match.parts)
    sources.push_back(at(part.send, offset * width_of(first.dtype)));
  std::vector<char> result(count * width_of(first.dtype) + 1);
  void* targets[] = {result.data()};
  coshard::reduce_into(dtype_of(first.dtype), reduction_of(first.reduce), sources, targets,
                       static_cast<std::int64_t>(count));
  return result;
}

void run_reduction(Match& match) {
  const Part& first = match.parts[0];
  const std::size_t bytes = first.count * width_of(first.dtype);
  if (first.kind == NcclCallKind::ReduceScatter) {
    const auto all = reduced(match, 0, first.count * match.parts.size());
    for (std::size_t r = 0; r < match.parts.size(); ++r)
      move(match.parts[r].recv, all.data() + r * bytes, bytes);
    return;
  }
  const auto all = reduced(match, 0, first.count);
  for (std::size_t r = 0; r < match.parts.size(); ++r) {
    if (first.kind == NcclCallKind::AllReduce || first.peer == static_cast<int>(r))
      move(match.parts[r].recv, all.data(), bytes);
  }
}

// Notes the accesses of rank `r`'s part; in place, without the data it has already.
void note_part(const Part& part, const FakeDriver::Op& op, std::size_t r, std::size_t ranks) {
  using enum NcclCallKind;
  const char* what = to_string(part.kind);
  const std::size_t bytes = part.count * width_of(part.dtype);
  const bool rooted = part.kind == Broadcast || part.kind == Reduce;
  const bool root = rooted && part.peer == static_cast<int>(r);
  const bool sends_all = part.kind == AllToAll || part.kind == ReduceScatter;
  const bool receives_all = part.kind == AllToAll || part.kind == AllGather;
  if (part.kind != Recv && (part.kind != Broadcast || root))
    driver().reads(what, part.send, sends_all ? ranks * bytes : bytes, &op);
  if (part.kind == Send || (part.kind == Reduce && !root)) return;
  for (std::size_t piece = 0; piece < (receives_all ? ranks : 1); ++piece) {
    const char* to = at(part.recv, piece * bytes);
    if (to != part.send || !(receives_all || part.kind == Broadcast))
      driver().writes(what, to, bytes, &op);
  }
}

void run_match(Match& match) {
  if (match.done) return;
  match.done = true;
  for (std::size_t r = 0; r < match.parts.size(); ++r)
    note_part(match.parts[r], *match.units[r]->op, r, match.parts.size());
  const Part& first = match.parts[0];
  const std::size_t n = match.parts.size(), bytes = first.count * width_of(first.dtype);
  switch (first.kind) {
    case NcclCallKind::Send: move(match.parts[1].recv, first.send, bytes); return;
    case NcclCallKind::Broadcast:
      for (std::size_t r = 0; r < n; ++r)
        move(match.parts[r].recv, match.parts[static_cast<std::size_t>(first.peer)].send, bytes);
      return;
    case NcclCallKind::AllGather:
    case NcclCallKind::AllToAll: {
      const bool gathers = first.kind == NcclCallKind::AllGather;
      for (std::size_t s = 0; s < n; ++s)
        for (std::size_t t = 0; t < n; ++t)
          move(at(match.parts[t].recv, s * bytes), at(match.parts[s].send, gathers ? 0 : t * bytes),
               bytes);
      return;
    }
    default: run_reduction(match);
  }
}

bool agree(const Part& a, const Part& b) {
  return a.kind == b.kind && a.count == b.count && a.dtype == b.dtype && a.reduce == b.reduce &&
         a.peer == b.peer;
}

// Puts `unit` into the match as `slot`; the units then wait for each other. True if the calls do
// not match, so that none of them will ever continue.
bool join(const std::shared_ptr<Match>& match, std::size_t slot, const Part& part,
          const std::shared_ptr<Unit>& unit) {
  const bool message = part.kind == NcclCallKind::Send || part.kind == NcclCallKind::Recv;
  match->parts[slot] = part;
  match->units[slot] = unit;
  unit->matches.push_back(match);
  bool mismatch = match->hung;
  for (std::size_t other = 0; other < match->units.size(); ++other) {
    if (other == slot || match->units[other] == nullptr) continue;
    const Part& theirs = match->parts[other];
    mismatch =
        mismatch || match->units[other]->broken ||
        (message ? theirs.count != part.count || theirs.dtype != part.dtype : !agree(theirs, part));
  }
  return mismatch;
}

void hang(Match& match) {
  match.hung = true;
  for (const auto& unit : match.units)
    if (unit != nullptr) unit->gate->expected = kNever;
}

std::shared_ptr<Match> match_of(const Part& part, std::size_t& slot) {
  Clique& clique = *part.comm->clique;
  std::shared_ptr<Match>* found = nullptr;
  std::size_t size = 2;
  if (part.kind == NcclCallKind::Send || part.kind == NcclCallKind::Recv) {
    const bool sends = part.kind == NcclCallKind::Send;
    const int source = sends ? part.comm->rank : part.peer;
    const int target = sends ? part.peer : part.comm->rank;
    // Each side counts its own messages.
    const auto key = sends ? std::pair(part.peer, 0) : std::pair(part.peer, 1);
    found = &clique.messages[{source, target, part.comm->messages[key]++}];
    slot = sends ? 0 : 1;
  } else {
    found = &clique.collectives[part.comm->collectives++];
    size = static_cast<std::size_t>(clique.size);
    slot = static_cast<std::size_t>(part.comm->rank);
  }
  if (*found == nullptr) {
    *found = std::make_shared<Match>();
    (*found)->id = state().next_match++;
    (*found)->parts.resize(size);
    (*found)->units.resize(size);
  }
  return *found;
}

// The stream of a device that comes after the launches so far, of all communicators.
FakeDriver::Stream& launch_order_of(const FakeDriver::Stream& stream) {
  FakeDriver::Stream*& order = state().launch_orders[stream.device];
  if (order == nullptr) order = driver().make_stream(stream.device, 0);
  return *order;
}

FakeDriver::OpRef launch(FakeDriver::Stream& stream, FakeDriver::Op op, bool ordered) {
  if (!ordered) return driver().enqueue(stream, std::move(op));
  FakeDriver::Stream& order = launch_order_of(stream);
  FakeDriver::Op wait, next;
  wait.after = {driver().enqueue(order, FakeDriver::Work())};
  driver().enqueue(stream, std::move(wait));
  FakeDriver::OpRef kernel = driver().enqueue(stream, std::move(op));
  next.after_launch = {kernel};
  driver().enqueue(order, std::move(next));
  return kernel;
}

}  // namespace

bool keeps_order() {
  std::optional<int>& order = state().order;
  if (!order) {
    const char* text = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    order = text == nullptr ? -1 : std::atoi(text);
  }
  return *order == 1;
}

void enqueue(const std::vector<Part>& parts) {
  // Matched with the peers' at each launch of the graph.
  const auto again = [parts, graphs = parts[0].comm->graphs](FakeDriver::Stream& stream) {
    std::vector<Part> moved = parts;
    for (Part& part : moved) part.stream = reinterpret_cast<cudaStream_t>(&stream);
    enqueue(moved);
  };
  if (fake_graphs::record(driver().stream(parts[0].stream), {}, again) != nullptr) return;
  const auto unit = std::make_shared<Unit>();
  unit->gate = std::make_shared<FakeDriver::Gate>();
  std::vector<std::shared_ptr<Match>> mismatched;  // these never end
  std::size_t expected = 1;
  for (const Part& part : parts) {
    std::size_t slot = 0;
    const auto match = match_of(part, slot);
    bool hangs = join(match, slot, part, unit) || part.stuck;
    expected += match->units.size() - 1;
    AsyncFault& fault = state().faults[part.comm->rank];
    if (fault.error != 0 && fault.after-- == 0) {
      part.comm->async = static_cast<ncclResult_t>(std::exchange(fault.error, 0));
      hangs = true;
    }
    if (hangs) mismatched.push_back(match);
  }
  unit->gate->expected = expected;
  FakeDriver::Op op;
  op.gate = unit->gate;
  op.work = [unit] {
    for (const auto& match : std::exchange(unit->matches, {})) run_match(*match);
    unit->op->gate = nullptr;
  };
  op.kernel = true;
  for (const auto& match : unit->matches) op.meetings.push_back({match->id, match->units.size()});
  unit->op = launch(driver().stream(parts[0].stream), std::move(op), parts[0].comm->ordered);
  for (const auto& match : unit->matches) {
    for (const auto& other : match->units) {
      if (other == nullptr || other == unit) continue;
      unit->gate->arrivals.push_back(other->op);
      other->gate->arrivals.push_back(unit->op);
    }
  }
  for (const auto& match : mismatched) hang(*match);
  Clique& clique = *parts[0].comm->clique;
  const auto complete = [](const auto& entry) {
    return std::ranges::all_of(entry.second->units, [](const auto& u) { return u != nullptr; });
  };
  std::erase_if(clique.collectives, complete);
  std::erase_if(clique.messages, complete);
  auto& queued = parts[0].comm->queued;
  std::erase_if(queued, [](const auto& old) { return old->op->done; });
  queued.push_back(unit);
}

bool meet(ncclComm& comm, const std::string& what, std::size_t ranks) {
  auto& there = comm.clique->meetings[what];
  if (there.insert(comm.rank).second) state().changed.notify_all();
  return there.size() >= ranks;
}

namespace {

// Connections are made at the first use of an algorithm or a peer, by the call itself, which
// returns once the others have called, too (ncclGroupEnd, group.cc: the jobs of ncclP2PPreconnect
// and ncclCollPreconnect are joined before the launch).
bool connect(const Part& part) {
  ncclComm& comm = *part.comm;
  if (part.kind != NcclCallKind::Send && part.kind != NcclCallKind::Recv)
    return meet(comm, to_string(part.kind), static_cast<std::size_t>(comm.clique->size));
  if (part.peer == comm.rank) return true;
  const bool sends = part.kind == NcclCallKind::Send;
  const int from = sends ? comm.rank : part.peer, to = sends ? part.peer : comm.rank;
  return meet(comm, std::to_string(from) + " to " + std::to_string(to), 2);
}

bool connect(const std::vector<Part>& parts) {
  bool all = true;
  for (const Part& part : parts) all = connect(part) && all;
  return all;
}

}  // namespace

ncclResult_t begin(Lock& held, std::vector<Part> parts) {
  ncclComm* comm = parts[0].comm;
  std::string& trace = state().traces[comm->rank];
  for (std::size_t i = 0; i < parts.size(); ++i)
    trace += (i > 0 ? "+" : trace.empty() ? "" : ",") + std::string(to_string(parts[i].kind));
  if (!comm->blocking && (comm->polls = static_cast<int>(driver().draw() % 3)) > 0) {
    comm->pending = std::move(parts);
    return ncclInProgress;
  }
  if (comm->blocking && !await(held, *comm, [&] { return connect(parts); }))
    return ncclInternalError;
  enqueue(parts);
  return ncclSuccess;
}

void await_graphs(Lock& held, const ncclComm& comm) {
  while (comm.graphs.use_count() > 1) state().changed.wait_for(held, std::chrono::milliseconds(1));
}

void release(ncclComm& comm) {
  for (const auto& unit : comm.queued) {
    if (unit->op->done) continue;
    unit->broken = true;
    for (const auto& match : unit->matches)
      for (const auto& other : match->units)
        if (other != nullptr && other != unit && !other->op->done) other->gate->expected = kNever;
    unit->op->gate = nullptr;
    unit->op->stuck = false;
    unit->op->work = nullptr;
    unit->matches.clear();
  }
  comm.queued.clear();
  comm.pending.clear();
  comm.polls = 0;
  // The job that would have stored into them has been joined (ncclGroupJobAbort, group.cc).
  if (comm.child) state().alive.erase(comm.child->value);
  comm.child.reset();
  comm.window.reset();
  comm.aborted = true;
  state().changed.notify_all();
}

}  // namespace nccl_fake

ExpectNcclComplaints::ExpectNcclComplaints() {
  const auto held = FakeDriver::get().lock();
  nccl_fake::state().complaints_expected = true;
}
ExpectNcclComplaints::~ExpectNcclComplaints() {
  const auto held = FakeDriver::get().lock();
  nccl_fake::state().complaints_expected = false;
  nccl_fake::state().complaints.clear();
}
std::vector<std::string> ExpectNcclComplaints::heard() const {
  const auto held = FakeDriver::get().lock();
  return nccl_fake::state().complaints;
}

void set_fake_nccl_async_error(int rank, int error, int after) {
  const auto held = FakeDriver::get().lock();
  nccl_fake::state().faults[rank] = {error, after};
}

void set_fake_nccl_order(std::optional<bool> order) {
  const auto held = FakeDriver::get().lock();
  nccl_fake::state().order = order;
}

std::size_t fake_nccl_communicators() {
  const auto held = FakeDriver::get().lock();
  return nccl_fake::state().alive.size();
}

std::string take_fake_nccl_trace(int rank) {
  const auto held = FakeDriver::get().lock();
  return std::exchange(nccl_fake::state().traces[rank], {});
}

}  // namespace coshard::testing
