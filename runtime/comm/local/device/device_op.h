#pragma once
// A collective between ranks on devices with streams: each rank's contribution, and the queueing of
// all of it on all ranks' streams by the rank that arrives last. A stream waits only for work that
// has already been queued: a driver may block whoever queues behind anything else.
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include <coshard/runtime/comm/communicator.h>
#include "runtime/comm/collective_info.h"
#include "runtime/device/peer_engine.h"

namespace coshard {

class LocalGroup;

// Up to this many bytes, over all ranks, each rank reduces an entire all_reduce by itself, and an
// all_gather arrives as a whole: more reads, fewer launches. Not measured yet.
constexpr std::int64_t kDeviceOneShotBytes = 512 * 1024;

using Kept = std::array<std::shared_ptr<Buffer>, 3>;  // send, recv and scratch

// Written by its rank before it arrives; read by the rank that queues the op.
struct DeviceSide {
  std::shared_ptr<Device> device;  // until the op is queued
  std::shared_ptr<Stream> stream;  // of the device; likewise
  std::shared_ptr<Event> ready;    // on the compute stream: send is there, recv may be written
  const Collective* args = nullptr;
  void* scratch = nullptr;
  Kept kept;  // its work handle's, and when that is dropped, here; under the queueing mutex
  std::weak_ptr<Device> known;
  int rank = 0;  // of the world; its communicator's timeout:
  std::int64_t timeout_ns = 0;
};

// Once it is queued, host waits check it and say whose device has not reached it.
class DeviceOp final : public Watched {
 public:
  explicit DeviceOp(int ranks) : sides(static_cast<std::size_t>(ranks)) {}
  void reset();  // only while nobody else has it

  // Queues all of it; every side has arrived and they agree. Under the group's queueing mutex.
  // Throws device errors; some of it may be queued then.
  void queue(std::weak_ptr<LocalGroup> group, const CollectiveInfo& what, std::int64_t timeout_ns);
  bool is_queued() const { return over_ != nullptr; }
  // The end of all of it, or of the shard of `source` on `target`; once it is queued.
  const Event& end() const { return *over_; }
  const Event& end_of_part(int source, int target) const;
  // Keeps what a dropped work handle of `side` held until the end. Under the queueing mutex.
  void keep(std::size_t side, Kept&& buffers, bool poisoned);

  bool over() override;
  void check(std::int64_t waited_ns) override;

  std::vector<DeviceSide> sides;

 private:
  std::string late_text() const;

  std::shared_ptr<Event> over_;                // all streams are past it; null: not queued
  std::vector<std::shared_ptr<Event>> parts_;  // [target * ranks + source], or empty
  bool started_ = false;                       // some of it is queued
  std::weak_ptr<LocalGroup> group_;
  std::optional<CollectiveInfo> what_;
  std::int64_t timeout_ns_ = 0;
};

// Bytes that rank `rank` needs besides its buffers.
std::int64_t scratch_bytes(const Collective& collective, int ranks, int rank);

}  // namespace coshard
