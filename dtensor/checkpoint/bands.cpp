#include "dtensor/checkpoint/bands.h"

#include <algorithm>

#include "dtensor/checkpoint/aligned_bytes.h"

namespace coshard {

std::int64_t bytes_in_memory(const std::vector<FileBytes>& parts) {
  std::int64_t bytes = 0;
  for (const FileBytes& part : parts) bytes += in_blocks(part.end - part.begin);
  return bytes;
}

Bands::Bands(const std::vector<std::int64_t>& file_bytes, const std::vector<FileBytes>& wanted,
             int ranks, std::int64_t window)
    : ranks_(static_cast<std::size_t>(ranks)),
      chunks_per_window_(static_cast<std::size_t>(std::max<std::int64_t>(window / kChunk, 1))) {
  for (const FileBytes& part : wanted) {
    if (part.begin == part.end) continue;
    for (std::int64_t at = part.begin / kChunk * kChunk; at < part.end; at += kChunk) {
      const bool is_there =
          !chunks_.empty() && chunks_.back().file == part.file && chunks_.back().begin >= at;
      if (!is_there)
        chunks_.push_back({part.file, at, std::min(at + kChunk, file_bytes[part.file])});
    }
  }
  const std::size_t most = (chunks_.size() + ranks_ - 1) / ranks_;
  windows_ = static_cast<int>((most + chunks_per_window_ - 1) / chunks_per_window_);
}

std::vector<FileBytes> Bands::window(int rank, int number) const {
  const auto r = static_cast<std::size_t>(rank), w = static_cast<std::size_t>(number);
  const std::size_t first = chunks_.size() * r / ranks_, last = chunks_.size() * (r + 1) / ranks_;
  const std::size_t begin = std::min(first + w * chunks_per_window_, last);
  const std::size_t end = std::min(begin + chunks_per_window_, last);
  std::vector<FileBytes> parts;
  for (std::size_t i = begin; i < end; ++i) {
    const FileBytes& chunk = chunks_[i];
    if (!parts.empty() && parts.back().file == chunk.file && parts.back().end == chunk.begin)
      parts.back().end = chunk.end;
    else
      parts.push_back(chunk);
  }
  return parts;
}

}  // namespace coshard
