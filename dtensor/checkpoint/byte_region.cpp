#include "dtensor/checkpoint/byte_region.h"

namespace coshard {
namespace {

bool is_whole(const Ranges& held, std::int64_t size) {
  return held.size() == 1 && held[0].begin == 0 && held[0].end == size;
}

}  // namespace

ByteRegion::ByteRegion(const Region& region, const Shape& shape, std::int64_t element_bytes)
    : unit_(element_bytes), size_(numel(region) * element_bytes) {
  if (size_ == 0) return;
  std::size_t cut = region.size();
  while (cut > 0 && is_whole(region[cut - 1], shape[cut - 1])) unit_ *= shape[--cut];
  std::int64_t bytes = unit_, own = unit_;
  for (std::size_t d = cut; d-- > 0;) {
    dims_.insert(dims_.begin(), Dim{region[d], bytes, own});
    bytes *= shape[d];
    own *= count_of(region[d]);
  }
}

std::int64_t ByteRegion::before(std::int64_t at) const {
  if (size_ == 0) return 0;
  std::int64_t count = 0;
  for (const Dim& dim : dims_) {
    const std::int64_t position = at / dim.bytes;
    bool held = false;
    for (const Range& range : dim.held) {
      count += (std::clamp(position, range.begin, range.end) - range.begin) * dim.own;
      held = held || (range.begin <= position && position < range.end);
    }
    if (!held) return count;
    at -= position * dim.bytes;
  }
  return count + at;
}

}  // namespace coshard
