#pragma once
// Copies and reductions of peers' memory on a stream, for collectives between ranks of one process
// on a device with streams. One per device; any thread.
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
  // Enables access to `peer`. Error{Unsupported}, naming both devices, if its memory cannot be
  // accessed from this one. No-op for the same device.
  virtual void reach(Device& peer) = 0;
  // Makes this device the calling thread's current one again, after work was queued on a peer's
  // streams.
  virtual void make_current() = 0;
  // In any order: no copy reads or writes what another one writes.
  virtual void copy(std::span<const StridedCopy> copies, Stream& stream) = 0;
  void copy(const StridedCopy& one, Stream& stream) { copy(std::span(&one, 1), stream); }
  // target[i] = sources[0][i] op sources[1][i] op …, bit for bit as reduce_into (comm/local).
  virtual void reduce(DType dtype, Reduce reduce, std::span<const void* const> sources,
                      void* target, std::int64_t count, Stream& stream) = 0;
};

}  // namespace coshard
