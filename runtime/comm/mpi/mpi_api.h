#pragma once
// The MPI calls of coshard as a table of functions. A shim fills it: a small shared module that is
// built once per MPI library, because their binary interfaces differ (mpi_shim.cpp). Messages are
// bytes on one duplicate of MPI_COMM_WORLD. Functions return null, or a static or thread-local text
// that says what failed. Calls after start() must be serialised (MPI_THREAD_SERIALIZED).
#include <cstddef>
#include <cstdint>

#include "runtime/comm/blocking_collective.h"

namespace coshard {

constexpr std::uint32_t kMpiApiVersion = 5;

// A message that has been sent or received.
struct MpiDone {
  std::uint64_t cookie = 0;  // as passed to send or receive
  std::size_t bytes = 0;     // received
};

struct MpiPlace {
  int rank = 0, size = 1;  // this process in MPI_COMM_WORLD
  int most_tag = 0;        // the largest tag that a message may have
};

struct MpiApi {
  std::uint32_t version;       // kMpiApiVersion
  const char* implementation;  // "Open MPI", "MPICH"
  const char* (*library)();    // one line: "Open MPI v4.1.4"
  // Initialises MPI unless the program has, and returns this process's place. Not thread-safe.
  const char* (*start)(MpiPlace* place);
  // Once nothing is in flight; finalises MPI if start() initialised it. A program that has
  // initialised MPI may finalise it before or after.
  const char* (*stop)();
  // Instead of stop(), if MPI would wait for processes that never come, or write to freed memory:
  // only tells the launcher, as MPI does last, that this process is about to exit normally.
  void (*leave)();
  // Ends all processes of the job.
  void (*abort)(int code);
  // At most 1 GiB each. Between two processes, messages with equal tags arrive in order.
  const char* (*send)(const void* data, std::size_t bytes, int to, int tag, std::uint64_t cookie);
  const char* (*receive)(void* data, std::size_t bytes, int from, int tag, std::uint64_t cookie);
  // Makes progress, and returns the completed messages, valid until the next call.
  const char* (*poll)(const MpiDone** done, int* count);
  // Ends a receive to which no message has come; poll() then returns it, with 0 bytes. Another one
  // goes on.
  const char* (*cancel)(std::uint64_t cookie);
  // The first of the messages from `from`, in the order in which it sent them, that no receive has
  // taken; tag -1: none has arrived.
  const char* (*probe)(int from, int* tag, std::size_t* bytes);
  // Whether MPI is initialised, by coshard or the program; if so, also this process's place.
  bool (*initialised)(MpiPlace* place);
  // For benchmarks: this MPI's own collective between all processes, called by all while nothing is
  // in flight.
  const char* (*blocking)(BlockingCollective kind, const void* send, void* recv,
                          std::size_t elements);
};

// What a shim exports.
extern "C" const MpiApi* coshard_mpi_api();

}  // namespace coshard
