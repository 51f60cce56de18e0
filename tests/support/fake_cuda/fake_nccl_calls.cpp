// NCCL's functions on the fake driver.
#include "tests/support/fake_cuda/fake_nccl.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "tests/support/fake_cuda/fake_pools.h"
#include "tests/support/fake_cuda/fake_nccl_state.h"

namespace coshard::testing {
namespace nccl_fake {
namespace {

FakeDriver& driver() { return FakeDriver::get(); }

thread_local int group_depth = 0;
thread_local std::vector<Part> group_parts;

// Counts the call; returns from the function when a fault says so.
#define NCCL_ENTER(name) \
  if (const int fault = driver().enter(name); fault != 0) return static_cast<ncclResult_t>(fault)

[[noreturn]] void never_return() {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

ncclResult_t take(Part part, const char* name) {
  NCCL_ENTER(name);
  part.stuck = FakeDriver::take_stuck();
  const auto held = driver().lock();
  if (!state().alive.contains(part.comm)) {
    driver().complain(std::string(name) + " on a communicator that is gone");
    return ncclInvalidArgument;
  }
  if (part.comm->polls > 0)
    driver().complain(std::string(name) + " while the communicator is in progress");
  if (part.comm->revoked) return ncclInvalidUsage;
  if (part.comm->async != ncclSuccess) return part.comm->async;
  if (group_depth > 0) {
    group_parts.push_back(part);
    return ncclSuccess;
  }
  return begin({part});
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

ncclComm* make(const std::shared_ptr<Clique>& clique, int size, int rank) {
  clique->size = size;
  clique->members.resize(static_cast<std::size_t>(size));
  auto* comm = new ncclComm();
  comm->clique = clique;
  comm->rank = rank;
  comm->device = FakeDriver::current_device();
  comm->polls = 1;
  clique->members[static_cast<std::size_t>(rank)] = comm;
  state().alive.insert(comm);
  return comm;
}

ncclResult_t init_rank(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                       ncclConfig_t* config) {
  NCCL_ENTER("ncclCommInitRankConfig");
  if (config->blocking != 0) driver().complain("a communicator that blocks");
  const auto held = driver().lock();
  auto& clique = state().cliques[std::string(id.internal, sizeof id.internal)];
  if (clique == nullptr) clique = std::make_shared<Clique>();
  *comm = make(clique, size, rank);
  return ncclInProgress;
}

ncclResult_t split(ncclComm_t parent, int color, int key, ncclComm_t* comm, ncclConfig_t* config) {
  NCCL_ENTER("ncclCommSplit");
  if (config->blocking != 0) driver().complain("a communicator that blocks");
  const auto held = driver().lock();
  for (const auto& unit : parent->queued)
    if (!unit->op->done) driver().complain("ncclCommSplit with operations in flight");
  auto& turn = state().splits[{parent->clique.get(), state().split_turns[parent]++}];
  if (turn == nullptr) turn = std::make_shared<Split>(Split{parent->clique->size, 0});
  ++turn->arrived;
  auto& clique = state().colors[{turn.get(), color}];
  if (clique == nullptr) clique = std::make_shared<Clique>();
  clique->split = turn;
  // Keys are ranks of the child; how many it has shows when all of the parent's ranks have come.
  *comm = make(clique, std::max(clique->size, key + 1), key);
  parent->polls = 1;
  return ncclInProgress;
}

// All ranks that will be are there.
bool connected(const ncclComm& comm) {
  const Clique& clique = *comm.clique;
  const bool all_split = clique.split == nullptr || clique.split->arrived == clique.split->expected;
  return all_split && clique.present() == clique.size;
}

ncclResult_t async_error(ncclComm_t comm, ncclResult_t* error) {
  NCCL_ENTER("ncclCommGetAsyncError");
  const auto held = driver().lock();
  if (!state().alive.contains(comm)) {
    driver().complain("ncclCommGetAsyncError of a communicator that is gone");
    return ncclInvalidArgument;
  }
  *error = comm->async;
  if (comm->async == ncclSuccess && comm->finalizing &&
      !std::ranges::all_of(comm->queued, [](const auto& u) { return driver().force(u->op); }))
    *error = ncclInProgress;
  if (comm->async != ncclSuccess || comm->polls == 0) return ncclSuccess;
  *error = ncclInProgress;
  if (!connected(*comm) || --comm->polls > 0) return ncclSuccess;
  if (!comm->pending.empty()) enqueue(std::exchange(comm->pending, {}));
  *error = comm->async;
  return ncclSuccess;
}

ncclResult_t revoke(ncclComm_t comm, int) {
  NCCL_ENTER("ncclCommRevoke");
  if (FakeDriver::take_stuck()) never_return();
  const auto held = driver().lock();
  comm->revoked = true;
  release(*comm);
  return ncclSuccess;
}

ncclResult_t abort_comm(ncclComm_t comm) {
  NCCL_ENTER("ncclCommAbort");
  if (FakeDriver::take_stuck()) never_return();
  const auto held = driver().lock();
  release(*comm);
  state().alive.erase(comm);
  return ncclSuccess;
}

ncclResult_t finalize(ncclComm_t comm) {
  NCCL_ENTER("ncclCommFinalize");
  const auto held = driver().lock();
  if (comm->revoked) driver().complain("ncclCommFinalize of a communicator that was revoked");
  comm->finalizing = true;
  return ncclInProgress;
}

ncclResult_t destroy(ncclComm_t comm) {
  NCCL_ENTER("ncclCommDestroy");
  const auto held = driver().lock();
  state().alive.erase(comm);
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
  return begin(std::move(parts));
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
ncclResult_t window_register(ncclComm_t comm, void* data, std::size_t, ncclWindow_t* window, int) {
  NCCL_ENTER("ncclCommWindowRegister");
  const auto held = driver().lock();
  // A window's memory is ncclMemAlloc's; a pool's cannot be one (NCCL user guide, window
  // registration).
  if (is_of_a_pool(data)) driver().complain("ncclCommWindowRegister of a pool's memory");
  *window = driver().peer_access() ? reinterpret_cast<ncclWindow_t>(data) : nullptr;
  comm->polls = 1;
  return ncclInProgress;
}
ncclResult_t window_deregister(ncclComm_t, ncclWindow_t) {
  NCCL_ENTER("ncclCommWindowDeregister");
  return ncclSuccess;
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

void set_fake_nccl_async_error(int rank, int error, int after) {
  const auto held = FakeDriver::get().lock();
  nccl_fake::state().faults[rank] = {error, after};
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
