#pragma once
// Which bytes of a row-major tensor a rank holds, as a file has them. Its own memory holds them in
// the same order, so that each range of the file's bytes is one range of its own. Pure.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "dtensor/redistribute/blocks.h"

namespace coshard {

class ByteRegion {
 public:
  ByteRegion() = default;  // nothing
  // `region`: the positions held of each dimension of `shape`.
  ByteRegion(const Region& region, const Shape& shape, std::int64_t element_bytes);

  std::int64_t size() const { return size_; }
  // How many of its bytes lie before byte `at` of the tensor.
  std::int64_t before(std::int64_t at) const;
  // Calls run(at, bytes) for each of its runs within bytes [begin, end) of the tensor, in order.
  template <class Run>
  void each_run(std::int64_t begin, std::int64_t end, Run&& run) const {
    if (size_ > 0 && begin < end) runs_of(0, 0, begin, end, run);
  }

 private:
  struct Dim {
    Ranges held;
    std::int64_t bytes;  // of one position in the tensor
    std::int64_t own;    // of one position in the part
  };

  template <class Run>
  void runs_of(std::size_t d, std::int64_t base, std::int64_t begin, std::int64_t end,
               Run& run) const {
    const auto emit = [&](std::int64_t from, std::int64_t to) {
      from = std::max(from, begin);
      to = std::min(to, end);
      if (from < to) run(from, to - from);
    };
    if (d == dims_.size()) return emit(base, base + unit_);
    const Dim& dim = dims_[d];
    const std::int64_t first = (std::max(begin, base) - base) / dim.bytes;
    const std::int64_t last = (end - base + dim.bytes - 1) / dim.bytes;
    for (const Range& range : dim.held) {
      const std::int64_t from = std::max(range.begin, first), to = std::min(range.end, last);
      if (d + 1 == dims_.size())
        emit(base + from * dim.bytes, base + std::max(from, to) * dim.bytes);
      else
        for (std::int64_t i = from; i < to; ++i)
          runs_of(d + 1, base + i * dim.bytes, begin, end, run);
    }
  }

  std::vector<Dim> dims_;  // up to the last one of which not everything is held
  std::int64_t unit_ = 0;  // bytes of what lies within: all of it is held
  std::int64_t size_ = 0;
};

}  // namespace coshard
