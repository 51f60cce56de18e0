#include "runtime/device/cuda/graph_memory.h"

#include <algorithm>
#include <iterator>

namespace coshard {
namespace {

constexpr std::size_t kAlignment = 512;
constexpr std::size_t kSmallest = std::size_t{2} << 20;  // a page of the device
constexpr std::size_t kLargest = std::size_t{256} << 20;

std::size_t rounded(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

std::size_t GraphMemory::chunk_for(std::size_t bytes) const {
  return rounded(std::max(bytes, std::min(bytes_, kLargest)), kSmallest);
}

std::size_t GraphMemory::smallest_chunk_for(std::size_t bytes) {
  return rounded(bytes, kAlignment);
}

void GraphMemory::add(Chunk chunk) {
  chunks.push_back(chunk);
  pieces_[chunk.data] = {chunk.bytes, true, true};
  bytes_ += chunk.bytes;
}

void* GraphMemory::take(std::size_t bytes) {
  const std::size_t size = rounded(bytes, kAlignment);
  auto best = pieces_.end();
  for (auto piece = pieces_.begin(); piece != pieces_.end(); ++piece) {
    if (!piece->second.free || piece->second.bytes < size) continue;
    if (best == pieces_.end() || piece->second.bytes < best->second.bytes) best = piece;
  }
  if (best == pieces_.end()) return nullptr;
  Piece& taken = best->second;
  if (taken.bytes > size) pieces_[best->first + size] = {taken.bytes - size, true, false};
  taken.bytes = size;
  taken.free = false;
  in_use_ += size;
  return best->first;
}

bool GraphMemory::owns(const void* data) const {
  const auto* at = static_cast<const char*>(data);
  return std::ranges::any_of(
      chunks, [at](const Chunk& c) { return at >= c.data && at < c.data + c.bytes; });
}

void GraphMemory::merge_with_next(Pieces::iterator piece) {
  const auto next = std::next(piece);
  if (next == pieces_.end() || !next->second.free || next->second.first) return;
  piece->second.bytes += next->second.bytes;
  pieces_.erase(next);
}

void GraphMemory::give(void* data, bool again) {
  const auto piece = pieces_.find(static_cast<char*>(data));
  in_use_ -= piece->second.bytes;
  if (!again) return;
  piece->second.free = true;
  merge_with_next(piece);
  if (piece->second.first) return;
  const auto before = std::prev(piece);
  if (before->second.free) merge_with_next(before);
}

}  // namespace coshard
