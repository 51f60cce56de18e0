// NCCL's functions on the fake driver.
#include "tests/support/fake_cuda/fake_nccl.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "tests/support/fake_cuda/fake_nccl_state.h"
#include "tests/support/fake_cuda/fake_pools.h"

namespace coshard::testing {
namespace nccl_fake {
namespace {

FakeDriver& driver() { return FakeDriver::get(); }

thread_local int group_depth = 0;
thread_local std::vector<Part> group_parts;

// Counts the call; returns from the function if a fault requires it.
#define NCCL_ENTER(name) \
  if (const int fault = driver().enter(name); fault != 0) return static_cast<ncclResult_t>(fault)

// Abort and revoke first set the flag (init.cc), so that threads inside leave; device work stays.
[[noreturn]] void never_return(ncclComm& comm) {
  {
    const auto held = driver().lock();
    comm.aborted = true;
    state().changed.notify_all();
  }
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

ncclResult_t take(Part part, const char* name) {
  NCCL_ENTER(name);
  part.stuck = FakeDriver::take_stuck();
  const Inside inside(part.comm, name);
  if (inside.status() != ncclSuccess) return inside.status();
  auto held = driver().lock();
  if (part.comm->async != ncclSuccess) return part.comm->async;
  if (group_depth > 0) {
    group_parts.push_back(part);
    return ncclSuccess;
  }
  return begin(held, {part});
}

// Stores a call's result once it is over.
template <class T>
void store(std::optional<Slot<T>>& slot, const char* name) {
  if (!slot) return;
  if (__atomic_load_n(slot->at, __ATOMIC_ACQUIRE) != nullptr)
    complain(std::string(name) + " stores into memory that its caller has given back");
  else
    __atomic_store_n(slot->at, slot->value, __ATOMIC_RELEASE);
  slot.reset();
}

void store_results(ncclComm& comm) {
  store(comm.child, "ncclCommSplit");
  store(comm.window, "ncclCommWindowRegister");
}

// --- the functions of the table ---

ncclResult_t get_version(int* version) {
  NCCL_ENTER("ncclGetVersion");
  *version = state().version != 0 ? state().version : NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t get_unique_id(ncclUniqueId* id) {
  NCCL_ENTER("ncclGetUniqueId");
  const auto held = driver().lock();
  std::memset(id, 0, sizeof *id);
  std::memcpy(id->internal, &state().next_id, sizeof(std::uint64_t));
  ++state().next_id;
  return ncclSuccess;
}

const char* error_string(ncclResult_t status) {
  return status == ncclRemoteError ? "remote process exited or there was a network error"
                                   : "an error of the fake";
}
const char* last_error(ncclComm_t) { return "said by the fake"; }

ncclComm* make(const std::shared_ptr<Clique>& clique, int size, int rank,
               const ncclConfig_t& config) {
  clique->size = size;
  clique->members.resize(static_cast<std::size_t>(size));
  auto* comm = new ncclComm();
  comm->clique = clique;
  comm->rank = rank;
  comm->device = FakeDriver::current_device();
  comm->blocking = config.blocking != 0;
  comm->polls = comm->blocking ? 0 : 1;
  comm->ordered = keeps_order();
  clique->members[static_cast<std::size_t>(rank)] = comm;
  state().alive.insert(comm);
  state().changed.notify_all();
  return comm;
}

// Whether all of its ranks have joined.
bool connected(const ncclComm& comm) {
  const Clique& clique = *comm.clique;
  const bool all_split = clique.split == nullptr || clique.split->arrived == clique.split->expected;
  return all_split && clique.present() == clique.size;
}

// The communicator is in the slot from the start, so that it can be aborted (ncclCommInitRankDev,
// init.cc:2515 of 2.30).
ncclResult_t init_rank(ncclComm_t* slot, int size, ncclUniqueId id, int rank,
                       ncclConfig_t* config) {
  NCCL_ENTER("ncclCommInitRankConfig");
  auto held = driver().lock();
  auto& clique = state().cliques[std::string(id.internal, sizeof id.internal)];
  if (clique == nullptr) clique = std::make_shared<Clique>();
  ncclComm* comm = make(clique, size, rank, *config);
  __atomic_store_n(slot, comm, __ATOMIC_RELEASE);
  if (!comm->blocking) return ncclInProgress;
  const Inside inside(comm, "ncclCommInitRankConfig");
  if (!await(held, *comm, [&] { return connected(*comm); })) return ncclInternalError;
  comm->ready = true;
  return ncclSuccess;
}

// "*newcomm should be NCCL_COMM_NULL until comm split fully complete" (init.cc:3098 of 2.30). The
// parent is busy until then, and aborting it ends the split (childAbortFlag).
ncclResult_t split(ncclComm_t parent, int color, int key, ncclComm_t* slot, ncclConfig_t* config) {
  NCCL_ENTER("ncclCommSplit");
  const Inside inside(parent, "ncclCommSplit");
  if (inside.status() != ncclSuccess) return inside.status();
  auto held = driver().lock();
  for (const auto& unit : parent->queued)
    if (!unit->op->done) complain("ncclCommSplit with operations in flight");
  auto& turn = state().splits[{parent->clique.get(), state().split_turns[parent]++}];
  if (turn == nullptr) turn = std::make_shared<Split>(Split{parent->clique->size, 0});
  ++turn->arrived;
  auto& clique = state().colors[{turn.get(), color}];
  if (clique == nullptr) clique = std::make_shared<Clique>();
  clique->split = turn;
  // Keys are ranks of the child; its size is known once all of the parent's ranks have called.
  *slot = nullptr;
  ncclComm* child = make(clique, std::max(clique->size, key + 1), key, *config);
  parent->child = Slot<ncclComm*>{slot, child};
  if (!parent->blocking) {
    parent->polls = 1;
    return ncclInProgress;
  }
  if (!await(held, *parent, [&] { return connected(*child); })) return ncclInternalError;
  child->ready = true;
  store_results(*parent);
  return ncclSuccess;
}

// The progress of a nonblocking communicator when it is polled.
void advance(ncclComm& comm) {
  const ncclComm& waits_for = comm.child ? *comm.child->value : comm;
  if (!connected(waits_for) || --comm.polls > 0) return;
  comm.ready = true;
  store_results(comm);
  if (!comm.pending.empty()) enqueue(std::exchange(comm.pending, {}));
}

ncclResult_t async_error(ncclComm_t comm, ncclResult_t* error) {
  NCCL_ENTER("ncclCommGetAsyncError");
  const auto held = driver().lock();
  if (!state().alive.contains(comm)) {
    complain("ncclCommGetAsyncError of a communicator that is gone");
    return ncclInvalidArgument;
  }
  const bool busy = comm->async == ncclSuccess && comm->polls > 0;
  if (busy) advance(*comm);
  *error = comm->async;
  const bool flushes =
      !comm->blocking && comm->finalizing &&
      !std::ranges::all_of(comm->queued, [](const auto& u) { return driver().force(u->op); });
  if (comm->async == ncclSuccess && (comm->polls > 0 || flushes)) *error = ncclInProgress;
  return ncclSuccess;
}

// A thread of NCCL's own runs a call in progress, and may have finished before.
void let_go(ncclComm& comm) {
  if (!comm.blocking && driver().draw() % 2 == 0) store_results(comm);
  release(comm);
}

// Releases threads inside and work on the device; frees nothing (ncclCommRevoke, init.cc).
ncclResult_t revoke(ncclComm_t comm, int) {
  NCCL_ENTER("ncclCommRevoke");
  if (FakeDriver::take_stuck()) never_return(*comm);
  const auto held = driver().lock();
  if (!comm->ready) complain("ncclCommRevoke of a communicator whose ranks have not met");
  if (comm->revoked || comm->finalizing) return ncclInvalidArgument;
  comm->revoked = true;
  let_go(*comm);
  return ncclSuccess;
}

// The last of the ranks in this process frees the memory (commReclaim, init.cc); a thread still
// inside one of them is a use after free.
void leave(ncclComm& comm, const char* name) {
  state().alive.erase(&comm);
  Clique& clique = *comm.clique;
  if (!comm.ready || ++clique.gone < clique.size) return;
  for (const ncclComm* member : clique.members)
    if (member->inside != nullptr)
      complain(std::string(name) + " frees what " + member->inside + " is inside of");
}

// From any thread, at any time: "ncclCommAbort can be called at any point during initialization,
// communication or when finalizing" (NCCL user guide, Fault tolerance). Threads that wait inside
// return an error; PyTorch's watchdog relies on it.
ncclResult_t abort_comm(ncclComm_t comm) {
  NCCL_ENTER("ncclCommAbort");
  if (FakeDriver::take_stuck()) never_return(*comm);
  auto held = driver().lock();
  if (!state().alive.contains(comm)) {
    complain("ncclCommAbort of a communicator that is gone");
    return ncclInvalidArgument;
  }
  let_go(*comm);
  await_graphs(held, *comm);
  leave(*comm, "ncclCommAbort");
  return ncclSuccess;
}

// Returns once this rank's operations are over.
ncclResult_t finalize(ncclComm_t comm) {
  NCCL_ENTER("ncclCommFinalize");
  const Inside inside(comm, "ncclCommFinalize");
  auto held = driver().lock();
  if (comm->revoked) complain("ncclCommFinalize of a communicator that was revoked");
  if (inside.status() != ncclSuccess) return inside.status();
  comm->finalizing = true;
  if (!comm->blocking) return ncclInProgress;
  const auto over = [&] {
    return std::ranges::all_of(comm->queued, [](const auto& u) { return driver().force(u->op); });
  };
  if (!await(held, *comm, over)) return ncclInternalError;
  await_graphs(held, *comm);
  return ncclSuccess;
}

ncclResult_t destroy(ncclComm_t comm) {
  NCCL_ENTER("ncclCommDestroy");
  const Inside inside(comm, "ncclCommDestroy");
  if (inside.status() != ncclSuccess) return inside.status();
  auto held = driver().lock();
  await_graphs(held, *comm);
  comm->inside = nullptr;
  leave(*comm, "ncclCommDestroy");
  return ncclSuccess;
}

ncclResult_t group_start() {
  NCCL_ENTER("ncclGroupStart");
  ++group_depth;
  return ncclSuccess;
}

ncclResult_t group_end() {
  if (group_depth > 0) --group_depth;
  std::vector<Part> parts = std::exchange(group_parts, {});
  NCCL_ENTER("ncclGroupEnd");
  if (group_depth > 0 || parts.empty()) return ncclSuccess;
  const Inside inside(parts[0].comm, "ncclGroupEnd");
  if (inside.status() != ncclSuccess) return inside.status();
  auto held = driver().lock();
  return begin(held, std::move(parts));
}

ncclResult_t all_reduce(const void* send, void* recv, std::size_t count, ncclDataType_t dtype,
                        ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return take({NcclCallKind::AllReduce, send, recv, count, dtype, op, 0, comm, stream},
              "ncclAllReduce");
}
ncclResult_t all_gather(const void* send, void* recv, std::size_t count, ncclDataType_t dtype,
                        ncclComm_t comm, cudaStream_t stream) {
  return take({NcclCallKind::AllGather, send, recv, count, dtype, ncclSum, 0, comm, stream},
              "ncclAllGather");
}
ncclResult_t all_to_all(const void* send, void* recv, std::size_t count, ncclDataType_t dtype,
                        ncclComm_t comm, cudaStream_t stream) {
  return take({NcclCallKind::AllToAll, send, recv, count, dtype, ncclSum, 0, comm, stream},
              "ncclAlltoAll");
}
ncclResult_t reduce_scatter(const void* send, void* recv, std::size_t count, ncclDataType_t dtype,
                            ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return take({NcclCallKind::ReduceScatter, send, recv, count, dtype, op, 0, comm, stream},
              "ncclReduceScatter");
}
ncclResult_t broadcast(const void* send, void* recv, std::size_t count, ncclDataType_t dtype,
                       int root, ncclComm_t comm, cudaStream_t stream) {
  return take({NcclCallKind::Broadcast, send, recv, count, dtype, ncclSum, root, comm, stream},
              "ncclBroadcast");
}
ncclResult_t reduce(const void* send, void* recv, std::size_t count, ncclDataType_t dtype,
                    ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return take({NcclCallKind::Reduce, send, recv, count, dtype, op, root, comm, stream},
              "ncclReduce");
}
ncclResult_t send_to(const void* send, std::size_t count, ncclDataType_t dtype, int peer,
                     ncclComm_t comm, cudaStream_t stream) {
  return take({NcclCallKind::Send, send, nullptr, count, dtype, ncclSum, peer, comm, stream},
              "ncclSend");
}
ncclResult_t recv_from(void* recv, std::size_t count, ncclDataType_t dtype, int peer,
                       ncclComm_t comm, cudaStream_t stream) {
  return take({NcclCallKind::Recv, nullptr, recv, count, dtype, ncclSum, peer, comm, stream},
              "ncclRecv");
}

ncclResult_t mem_alloc(void** data, std::size_t bytes) {
  NCCL_ENTER("ncclMemAlloc");
  *data = driver().allocate(bytes, true);
  return *data == nullptr ? ncclUnhandledCudaError : ncclSuccess;
}
ncclResult_t mem_free(void* data) {
  NCCL_ENTER("ncclMemFree");
  driver().drain();
  return driver().release(data) ? ncclSuccess : ncclInvalidArgument;
}
// Called by all ranks.
ncclResult_t window_register(ncclComm_t comm, void* data, std::size_t, ncclWindow_t* slot, int) {
  NCCL_ENTER("ncclCommWindowRegister");
  const Inside inside(comm, "ncclCommWindowRegister");
  if (inside.status() != ncclSuccess) return inside.status();
  auto held = driver().lock();
  // A window's memory comes from ncclMemAlloc, not from a pool (NCCL user guide, window
  // registration).
  if (is_of_a_pool(data)) driver().complain("ncclCommWindowRegister of a pool's memory");
  *slot = nullptr;
  ncclWindow_t made = driver().peer_access() ? reinterpret_cast<ncclWindow_t>(data) : nullptr;
  comm->window = Slot<ncclWindow_t>{slot, made};
  if (!comm->blocking) {
    comm->polls = 1;
    return ncclInProgress;
  }
  const std::string what = "window " + std::to_string(comm->windows++);
  const auto all = static_cast<std::size_t>(comm->clique->size);
  if (!await(held, *comm, [&] { return meet(*comm, what, all); })) return ncclInternalError;
  store_results(*comm);
  return ncclSuccess;
}
ncclResult_t window_deregister(ncclComm_t comm, ncclWindow_t) {
  NCCL_ENTER("ncclCommWindowDeregister");
  return Inside(comm, "ncclCommWindowDeregister").status();
}

NcclApi table_of(int version) {
  NcclApi api;
  api.AllGather = all_gather;
  api.AllReduce = all_reduce;
  api.Broadcast = broadcast;
  api.CommAbort = abort_comm;
  api.CommDestroy = destroy;
  api.CommFinalize = finalize;
  api.CommGetAsyncError = async_error;
  api.CommInitRankConfig = init_rank;
  api.GetErrorString = error_string;
  api.GetLastError = last_error;
  api.GetUniqueId = get_unique_id;
  api.GetVersion = get_version;
  api.GroupEnd = group_end;
  api.GroupStart = group_start;
  api.Recv = recv_from;
  api.Reduce = reduce;
  api.ReduceScatter = reduce_scatter;
  api.Send = send_to;
  if (version >= 21800) api.CommSplit = split;
  if (version >= 21900) api.MemAlloc = mem_alloc, api.MemFree = mem_free;
  if (version >= 22703)
    api.CommWindowRegister = window_register, api.CommWindowDeregister = window_deregister;
  if (version >= 22803) api.AlltoAll = all_to_all;
  if (version >= 22807) api.CommRevoke = revoke;
  return api;
}

}  // namespace
}  // namespace nccl_fake

void set_fake_nccl_version(int version) {
  static std::map<int, NcclApi> tables;
  const auto held = FakeDriver::get().lock();
  nccl_fake::state().version = version;
  const int settled = version != 0 ? version : NCCL_VERSION_CODE;
  use_nccl(&tables.try_emplace(settled, nccl_fake::table_of(settled)).first->second);
}

void install_fake_nccl() { set_fake_nccl_version(0); }

}  // namespace coshard::testing
