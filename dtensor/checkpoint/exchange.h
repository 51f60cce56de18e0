#pragma once
// Moves the bytes of files between the ranks that read or write them (bands.h) and those that hold
// them as tensors, whatever their layouts. Rank's thread.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <coshard/dtensor/tensor/tensor.h>
#include <coshard/runtime/coro/task.h>
#include <coshard/runtime/launch/world.h>
#include "dtensor/checkpoint/aligned_bytes.h"
#include "dtensor/checkpoint/bands.h"
#include "dtensor/checkpoint/holders.h"
#include "dtensor/checkpoint/local_parts.h"

namespace coshard {

struct PlacedTensor {
  std::size_t file;
  std::int64_t begin, end;  // bytes of the file
  HeldTensor held;
};

class Exchange {
 public:
  // `tensors`, in order of file and place, outlive this.
  Exchange(World& world, const Bands& bands, std::vector<PlacedTensor>& tensors)
      : world_(world), bands_(bands), tensors_(tensors) {}

  // Puts what all ranks hold of this rank's window into `bytes`, which has room for it in memory
  // (bands.h); 0 where no tensor lies. `bytes` stays until this is done.
  //   Moves: one all_to_all of bytes on World::files().
  Task<void> collect(int window, PartsToSave& parts, std::span<std::byte> bytes);
  // The reverse: what this rank's window has of each tensor, to all ranks that hold it.
  Task<void> spread(int window, std::span<const std::byte> bytes, PartsToLoad& parts);
  // The last window, of any rank, that has bytes of each tensor; -1: none has.
  std::vector<int> last_windows() const;

 private:
  // Calls each(tensor, begin, end, at): of its bytes [begin, end), which lie from `at` on in a
  // window.
  template <class Each>
  void each_tensor(int rank, int window, Each&& each) const;

  // Empty, of the pool, with room for so many bytes.
  void place(int window, PartsToSave& parts, const ByteVector& received,
             std::span<std::byte> bytes);
  ByteVector room_for(const std::vector<std::int64_t>& counts) const;

  World& world_;
  const Bands& bands_;
  std::vector<PlacedTensor>& tensors_;
  std::shared_ptr<Pool<ByteVector>> pool_ = std::make_shared<Pool<ByteVector>>();
};

}  // namespace coshard
