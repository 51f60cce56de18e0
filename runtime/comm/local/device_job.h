#pragma once
// A collective between ranks on devices that queue their work: what each rank brings, and the
// queueing of all of it on the streams of all ranks, by the rank that came last. Nobody waits on
// the host: compute streams wait for the marks of their lane.
#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/local/lane.h"

namespace coshard {

// Up to this many bytes, over all ranks, each rank reduces the whole of an all_reduce by itself: it
// reads more and queues less. Not measured yet.
constexpr std::int64_t kDeviceOneShotBytes = 512 * 1024;

using Kept = std::array<std::shared_ptr<Buffer>, 3>;  // send, recv and scratch

// Written by its rank before it arrives, and read by who queues the job.
struct DeviceSide {
  std::shared_ptr<Lane> lane;
  std::shared_ptr<Event> ready;  // on the compute stream: send is there, recv may be written
  Marks marks;                   // all_gather: one per part, own first; then, as for all, the end
  const Collective* args = nullptr;
  void* scratch = nullptr;
  Kept kept;  // under the group's queueing mutex: of a work handle that was dropped
};

struct DeviceJob {
  explicit DeviceJob(int ranks) : sides(static_cast<std::size_t>(ranks)) {}
  void reset();

  std::vector<DeviceSide> sides;
  bool started = false;             // under the group's queueing mutex
  std::shared_ptr<Event> over;      // all streams are past the job
  std::atomic<bool> queued{false};  // false -> true with `over` set
};

// Bytes that rank `rank` needs besides its buffers.
std::int64_t scratch_bytes(const Collective& collective, int ranks, int rank);
// How many marks a rank takes.
std::uint32_t marks_of(const Collective& collective, int ranks);
// Queues it all; every side is there and they agree. Under the group's queueing mutex. Throws what
// the device says; then some of it may be queued, and no mark at the end is written.
void queue(DeviceJob& job);

}  // namespace coshard
