#pragma once
// A collective between ranks on devices with streams: each rank's contribution, and the queueing of
// all of it on all ranks' streams by the rank that arrives last. A stream waits only for work that
// has already been queued: otherwise a driver may block the thread that queues behind it.
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include <coshard/runtime/comm/communicator.h>
#include "runtime/comm/collective_info.h"
#include "runtime/device/peer_engine.h"

namespace coshard {

class LocalGroup;

// Up to this many bytes, over all ranks, each rank reduces an entire all_reduce itself, and an
// all_gather arrives as a whole: more reads, fewer launches. Not tuned by measurement yet.
constexpr std::int64_t kDeviceOneShotBytes = 512 * 1024;

using Kept = std::array<std::shared_ptr<Buffer>, 3>;  // send, recv and scratch

// Written by its rank before it arrives; read by the rank that queues the op.
struct DeviceSide {
  std::shared_ptr<Device> device;  // until the op is queued
  std::shared_ptr<Stream> stream;  // of the device; likewise
  std::shared_ptr<Event> ready;    // on the compute stream: send is filled, recv is writable
  const Collective* args = nullptr;
  void* scratch = nullptr;
  Kept kept;  // held by the work handle, or here once that is dropped; queueing mutex
  std::weak_ptr<Device> known;
  int rank = 0;  // in the world; below: its communicator's timeout
  std::int64_t timeout_ns = 0;
  bool timed = false;                  // an observer wants its times
  std::shared_ptr<Event> begin, over;  // on its own stream, if it is timed
};

// Once it is queued, host waits check it and report whose device has not reached it.
class DeviceOp final : public Watched {
 public:
  explicit DeviceOp(int ranks) : sides(static_cast<std::size_t>(ranks)) {}
  void reset();  // only while nothing else refers to it

  // Queues the whole op; all sides must have arrived and agree. Under the group's queueing mutex.
  // Throws device errors, after which part of it may be queued.
  void queue(std::weak_ptr<LocalGroup> group, const CollectiveInfo& what, std::int64_t timeout_ns);
  bool is_queued() const { return over_ != nullptr; }
  // The completion of the op, or of `source`'s shard on `target`; only once it is queued.
  const std::shared_ptr<Event>& end() const { return over_; }
  const std::shared_ptr<Event>& end_of_part(int source, int target) const;
  // Keeps the buffers of a dropped work handle of `side` until completion. Under the queueing
  // mutex.
  void keep(std::size_t side, Kept&& buffers, bool poisoned);

  bool over() override;
  void check(std::int64_t waited_ns) override;

  std::vector<DeviceSide> sides;

 private:
  std::string late_text() const;

  std::shared_ptr<Event> over_;                // completion on all streams; null: not queued
  std::vector<std::shared_ptr<Event>> parts_;  // [target * ranks + source], or empty
  bool started_ = false;                       // part of it may be queued
  std::weak_ptr<LocalGroup> group_;
  std::optional<CollectiveInfo> what_;
  std::int64_t timeout_ns_ = 0;
};

// Scratch bytes that `rank` needs besides its buffers.
std::int64_t scratch_bytes(const Collective& collective, int ranks, int rank);

}  // namespace coshard
