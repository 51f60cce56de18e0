#pragma once
// What collectives between ranks of one process need of a device that queues its work: to move and
// reduce memory of peers on a stream. One per device; any thread.
#include <cstdint>
#include <memory>
#include <span>

#include <coshard/runtime/device/device.h>
#include <coshard/runtime/dtype.h>
#include <coshard/runtime/reduce.h>

namespace coshard {

// `rows` runs of `bytes` each, `to_pitch` and `from_pitch` bytes apart.
struct StridedCopy {
  void* to;
  const void* from;
  std::int64_t rows, bytes, to_pitch, from_pitch;
};

class PeerEngine {
 public:
  virtual ~PeerEngine() = default;
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
