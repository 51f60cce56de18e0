#pragma once
// Where the share of one rank in collectives on a device that queues its work runs: a stream of the
// device, and flags by which its compute stream waits for what is not queued yet. Work that another
// thread queues in an order of its own has a lane of its own. Made by its rank, kept by the group.
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/device/peer_engine.h"

namespace coshard {

// Counts of a flag that the stream of a lane writes one after another: first + 1 up to last.
struct Marks {
  std::shared_ptr<Flag> flag;
  std::uint32_t first = 0, last = 0;
};

class Lane {
 public:
  explicit Lane(std::shared_ptr<Device> device);
  // Lets go of streams that wait for what was never queued.
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  Device& device() const { return *device_; }
  Stream& stream() const { return *stream_; }
  PeerEngine& engine() const { return *device_->peers(); }

  // The next `count` marks; on the thread of the rank, in the order in which they will be written.
  Marks take(std::uint32_t count);
  // Writes the last of them. The work of one lane is queued by one thread at a time.
  void write_last(const Marks& marks);
  // The compute stream passes all marks, now and later. Any thread.
  void release() noexcept;
  // The devices that this lane meets are within reach of each other; set by who queues.
  bool met = false;

 private:
  std::shared_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::mutex mutex_;                          // the two below
  std::vector<std::shared_ptr<Flag>> flags_;  // the last one is in use, the others are at their end
  bool released_ = false;
  std::uint32_t taken_ = 0;
  std::uint64_t taken_in_all_ = 0, written_in_all_ = 0;
};

}  // namespace coshard
