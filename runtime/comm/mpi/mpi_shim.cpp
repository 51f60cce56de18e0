// Fills the table of mpi_api.h from one MPI library. Built once per MPI, opened by mpi_library.cpp;
// does not link against coshard.
#include <dlfcn.h>
#include <mpi.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "runtime/comm/mpi/mpi_api.h"

namespace coshard {
namespace {

MPI_Comm world = MPI_COMM_NULL;
bool ours = false;  // start() initialised MPI

struct InFlight {
  std::uint64_t cookie;
  bool sent;
};
// All messages in flight; index i of both is one message.
std::vector<MPI_Request> requests;
std::vector<InFlight> messages;
// Used by poll(), which is called until process exit: function-local statics would be destroyed
// before its callers.
std::vector<int> indices;
std::vector<MPI_Status> statuses;
std::vector<MpiDone> all;

const char* text_of(int code, const char* call) {
  if (code == MPI_SUCCESS) return nullptr;
  thread_local char text[MPI_MAX_ERROR_STRING + 64];
  char reason[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, reason, &length);
  std::snprintf(text, sizeof text, "%s: %s", call, reason);
  return text;
}

const char* library() {
  static char text[MPI_MAX_LIBRARY_VERSION_STRING + 1] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  // "Open MPI v4.1.4, package: …", "MPICH Version:\t4.0.2\n…"
  if (char* end = std::strpbrk(text, ",\n")) *end = 0;
  if (std::strncmp(text, "MPICH Version:", 14) == 0) {
    char version[64] = "";
    std::sscanf(text + 14, " %63s", version);
    std::snprintf(text, sizeof text, "MPICH %s", version);
  }
  return text;
}

const char* name_of(int level) {
  if (level == MPI_THREAD_SINGLE) return "MPI_THREAD_SINGLE";
  return level == MPI_THREAD_FUNNELED ? "MPI_THREAD_FUNNELED" : "MPI_THREAD_SERIALIZED";
}

const char* check(int level) {
  if (level >= MPI_THREAD_SERIALIZED) return nullptr;
  static char text[256];
  if (ours)
    std::snprintf(text, sizeof text, "supports only %s: use a build with thread support",
                  name_of(level));
  else
    std::snprintf(text, sizeof text,
                  "the program has initialised MPI with %s: call MPI_Init_thread with "
                  "MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE",
                  name_of(level));
  return text;
}

const char* initialise() {
  int done = 0, over = 0, level = 0;
  MPI_Finalized(&over);
  if (over != 0) return "MPI has already been finalised: run ranks before MPI_Finalize";
  MPI_Initialized(&done);
  if (done != 0) {
    MPI_Query_thread(&level);
  } else {
    if (const char* problem =
            text_of(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "MPI_Init"))
      return problem;
    ours = true;
  }
  return check(level);
}

// Cancels unmatched receives and frees the communicator. Messages already sent still arrive.
void release() {
  if (world == MPI_COMM_NULL) return;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (!messages[i].sent) MPI_Cancel(&requests[i]);
    MPI_Request_free(&requests[i]);
  }
  requests.clear();
  messages.clear();
  MPI_Comm_free(&world);
}

int at_finalize(MPI_Comm, int, void*, void*) {
  release();
  return MPI_SUCCESS;
}

// MPI_Finalize first deletes the attributes of MPI_COMM_SELF: a hook for programs that finalise MPI
// themselves.
const char* release_at_finalize() {
  int key = MPI_KEYVAL_INVALID;
  int code = MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_finalize, &key, nullptr);
  if (code == MPI_SUCCESS) code = MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr);
  return text_of(code, "MPI_Comm_set_attr");
}

bool initialised(MpiPlace* place) {
  int done = 0, over = 0;
  MPI_Initialized(&done);
  MPI_Finalized(&over);
  if (done == 0 || over != 0) return false;
  MPI_Comm_rank(MPI_COMM_WORLD, &place->rank);
  MPI_Comm_size(MPI_COMM_WORLD, &place->size);
  return true;
}

const char* start(MpiPlace* place) {
  if (world == MPI_COMM_NULL) {
    if (const char* problem = initialise()) return problem;
    if (const char* problem = text_of(MPI_Comm_dup(MPI_COMM_WORLD, &world), "MPI_Comm_dup"))
      return problem;
    MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
    if (!ours)
      if (const char* problem = release_at_finalize()) return problem;
  }
  MPI_Comm_rank(world, &place->rank);
  MPI_Comm_size(world, &place->size);
  void* most = nullptr;
  int known = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&most), &known);
  place->most_tag = known != 0 ? *static_cast<int*>(most) : 32767;
  return nullptr;
}

#ifdef OPEN_MPI
// mpirun treats an exit without this as a failure, whatever the exit code. Finds nothing if Open
// MPI bundles its own PMIx, whose symbols have other names.
bool told_launcher() {
  void* pmix = ::dlopen("libpmix.so.2", RTLD_LAZY | RTLD_NOLOAD);
  using Finalize = int (*)(const void* info, std::size_t infos);
  const auto finalize =
      pmix == nullptr ? nullptr : reinterpret_cast<Finalize>(::dlsym(pmix, "PMIx_Finalize"));
  return finalize != nullptr && finalize(nullptr, 0) == 0;
}
#else
// The program may have timers that interrupt calls.
template <class Call>
ssize_t uninterrupted(Call call) {
  ssize_t done = 0;
  do done = call();
  while (done < 0 && errno == EINTR);
  return done;
}

// In MPI_Finalize over TCP, a process of MPICH 4.0 disconnects from peers that may already have
// disconnected and wait for it in a barrier of the launcher: a deadlock. Nothing is in flight any
// more, so this only sends hydra the final message of MPI_Finalize. False: there is no hydra.
bool told_launcher() {
  const char* pmi = std::getenv("PMI_FD");
  if (pmi == nullptr || std::getenv("SLURM_STEP_ID") != nullptr) return false;
  constexpr std::string_view kDone = "cmd=finalize\n", kAnswer = "cmd=finalize_ack";
  const int fd = std::atoi(pmi);
  const ssize_t sent = uninterrupted([&] { return ::write(fd, kDone.data(), kDone.size()); });
  if (sent != static_cast<ssize_t>(kDone.size())) return false;
  char answer[64];
  const ssize_t size = uninterrupted([&] { return ::read(fd, answer, sizeof answer); });
  return size > 0 && std::string_view(answer, static_cast<std::size_t>(size)).starts_with(kAnswer);
}
#endif

const char* stop() {
  if (world == MPI_COMM_NULL) return nullptr;
  release();
#ifndef OPEN_MPI
  if (ours && told_launcher()) return nullptr;
#endif
  return ours ? text_of(MPI_Finalize(), "MPI_Finalize") : nullptr;
}

void leave() {
  if (ours && world != MPI_COMM_NULL) (void)told_launcher();
}

void abort_all(int code) { MPI_Abort(MPI_COMM_WORLD, code); }

const char* add(int code, const char* call, MPI_Request request, InFlight message) {
  if (code == MPI_SUCCESS) {
    requests.push_back(request);
    messages.push_back(message);
  }
  return text_of(code, call);
}

const char* send(const void* data, std::size_t bytes, int to, int tag, std::uint64_t cookie) {
  MPI_Request request{};
  const int code = MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, tag, world, &request);
  return add(code, "MPI_Isend", request, {cookie, true});
}

const char* receive(void* data, std::size_t bytes, int from, int tag, std::uint64_t cookie) {
  MPI_Request request{};
  const int code = MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, from, tag, world, &request);
  return add(code, "MPI_Irecv", request, {cookie, false});
}

// Keeps the order of the others: older messages are tested first.
void forget_null() {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (requests[i] == MPI_REQUEST_NULL) continue;
    requests[kept] = requests[i];
    messages[kept++] = messages[i];
  }
  requests.resize(kept);
  messages.resize(kept);
}

const char* poll(const MpiDone** done, int* count) {
  *count = 0;
  if (requests.empty()) return nullptr;
  indices.resize(requests.size());
  statuses.resize(requests.size());
  int over = 0;
  const int code = MPI_Testsome(static_cast<int>(requests.size()), requests.data(), &over,
                                indices.data(), statuses.data());
  if (code != MPI_SUCCESS) return text_of(code, "MPI_Testsome");
  if (over == MPI_UNDEFINED || over == 0) return nullptr;
  all.clear();
  for (std::size_t i = 0; i < static_cast<std::size_t>(over); ++i) {
    int bytes = 0;
    MPI_Get_count(&statuses[i], MPI_BYTE, &bytes);
    int cancelled = 0;
    MPI_Test_cancelled(&statuses[i], &cancelled);
    all.push_back({messages[static_cast<std::size_t>(indices[i])].cookie,
                   static_cast<std::size_t>(bytes < 0 || cancelled != 0 ? 0 : bytes)});
  }
  *done = all.data();
  *count = over;
  forget_null();
  return nullptr;
}

const char* cancel(std::uint64_t cookie) {
  for (std::size_t i = 0; i < requests.size(); ++i)
    if (messages[i].cookie == cookie) return text_of(MPI_Cancel(&requests[i]), "MPI_Cancel");
  return nullptr;
}

const char* probe(int from, int* tag, std::size_t* bytes) {
  int there = 0, size = 0;
  MPI_Status status;
  const int code = MPI_Iprobe(from, MPI_ANY_TAG, world, &there, &status);
  *tag = -1;
  if (code != MPI_SUCCESS || there == 0) return text_of(code, "MPI_Iprobe");
  MPI_Get_count(&status, MPI_BYTE, &size);
  *tag = status.MPI_TAG;
  *bytes = static_cast<std::size_t>(size);
  return nullptr;
}

constexpr int kColumns = 64;

// Redistributes a matrix from row shards to column shards.
const char* transpose(const void* send, void* recv, int rows, int processes) {
  static std::vector<MPI_Datatype> blocks;  // the columns to send; by log2 of `rows`
  const int mine = rows / processes, width = kColumns / processes;
  std::size_t place = 0;
  while (1 << place < rows) ++place;
  if (blocks.size() <= place) blocks.resize(place + 1, MPI_DATATYPE_NULL);
  if (blocks[place] == MPI_DATATYPE_NULL) {
    MPI_Type_vector(mine, width, kColumns, MPI_FLOAT, &blocks[place]);
    MPI_Type_commit(&blocks[place]);
  }
  const auto all = static_cast<std::size_t>(processes);
  const std::vector<int> ones(all, 1), counts(all, mine * width);
  std::vector<int> from(all), to(all);
  for (int p = 0; p < processes; ++p) {
    from[static_cast<std::size_t>(p)] = p * width * static_cast<int>(sizeof(float));
    to[static_cast<std::size_t>(p)] = p * mine * width * static_cast<int>(sizeof(float));
  }
  const std::vector<MPI_Datatype> sent(all, blocks[place]), received(all, MPI_FLOAT);
  return text_of(MPI_Alltoallw(send, ones.data(), from.data(), sent.data(), recv, counts.data(),
                               to.data(), received.data(), world),
                 "MPI_Alltoallw");
}

const char* blocking(BlockingCollective kind, const void* send, void* recv, std::size_t elements) {
  int processes = 1;
  MPI_Comm_size(world, &processes);
  const int all = static_cast<int>(elements), part = all / processes;
  switch (kind) {
    case BlockingCollective::AllReduce:
      return text_of(MPI_Allreduce(send, recv, all, MPI_FLOAT, MPI_SUM, world), "MPI_Allreduce");
    case BlockingCollective::AllReduceInPlace:
      return text_of(MPI_Allreduce(MPI_IN_PLACE, recv, all, MPI_FLOAT, MPI_SUM, world),
                     "MPI_Allreduce");
    case BlockingCollective::AllGather:
      return text_of(MPI_Allgather(send, part, MPI_FLOAT, recv, part, MPI_FLOAT, world),
                     "MPI_Allgather");
    case BlockingCollective::ReduceScatter:
      return text_of(MPI_Reduce_scatter_block(send, recv, part, MPI_FLOAT, MPI_SUM, world),
                     "MPI_Reduce_scatter_block");
    default: return transpose(send, recv, all / kColumns, processes);
  }
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const MpiApi* coshard_mpi_api() {
#ifdef OPEN_MPI
  constexpr const char* implementation = "Open MPI";
#else
  constexpr const char* implementation = "MPICH";
#endif
  static constexpr MpiApi api = {kMpiApiVersion, implementation, library,     start,   stop,
                                 leave,          abort_all,      send,        receive, poll,
                                 cancel,         probe,          initialised, blocking};
  return &api;
}

}  // namespace coshard
