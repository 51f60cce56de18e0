#pragma once
// What collectives between ranks of one process need of a device that queues its work: to move and
// reduce memory of peers on a stream, and flags by which streams of different ranks wait for each
// other without an event that exists already. One per device; any thread.
#include <cstdint>
#include <memory>
#include <span>

#include "runtime/device/device.h"
#include "runtime/dtype.h"
#include "runtime/reduce.h"

namespace coshard {

// A 32-bit count in memory that devices and the host see. Streams wait until it has reached a
// value. The memory stays until the device that made the flag is gone.
class Flag {
 public:
  virtual ~Flag() = default;
  virtual void wait(Stream& stream, std::uint32_t value) = 0;   // what follows runs after that
  virtual void write(Stream& stream, std::uint32_t value) = 0;  // once the stream gets there
  // From the host: from now on every wait goes on at once, whatever is written later.
  virtual void release() noexcept = 0;
  virtual bool released() const noexcept = 0;
  virtual bool reached(std::uint32_t value) const noexcept = 0;  // by what streams wrote
};

// `rows` runs of `bytes` each, `to_pitch` and `from_pitch` bytes apart.
struct StridedCopy {
  void* to;
  const void* from;
  std::int64_t rows, bytes, to_pitch, from_pitch;
};

class PeerEngine {
 public:
  virtual ~PeerEngine() = default;
  virtual std::unique_ptr<Flag> make_flag() = 0;  // at 0
  // Error{Unsupported} names both devices when `peer` cannot be read from this one. Same device:
  // nothing to do.
  virtual void reach(Device& peer) = 0;
  // The calling thread's calls are for this device again, after it queued work on a peer's streams.
  virtual void make_current() = 0;
  virtual void copy(const StridedCopy& copy, Stream& stream) = 0;
  // target[i] = sources[0][i] op sources[1][i] op …; the numbers of reduce_into (comm/local).
  virtual void reduce(DType dtype, Reduce reduce, std::span<const void* const> sources,
                      void* target, std::int64_t count, Stream& stream) = 0;
};

}  // namespace coshard
