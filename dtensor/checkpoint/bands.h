#pragma once
// Which rank reads and writes which bytes of files. Their chunks, one file after the other, are
// dealt to the ranks in runs of equal length, each of which a rank handles window by window. Pure.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace coshard {

// Bytes [k MiB, (k+1) MiB) of a file are its chunk k; its last one may be shorter.
inline constexpr std::int64_t kChunk = std::int64_t{1} << 20;

constexpr std::int64_t chunks_of(std::int64_t bytes) { return (bytes + kChunk - 1) / kChunk; }

// Of each rank's window, so that all of them together take 32 MiB on a rank that holds everything.
constexpr std::int64_t window_bytes(int ranks) { return std::max(32 * kChunk / ranks, kChunk); }

// Bytes [begin, end) of a file.
struct FileBytes {
  std::size_t file;
  std::int64_t begin, end;
  bool operator==(const FileBytes&) const = default;
};

// Bytes that the parts of a window take in memory.
std::int64_t bytes_in_memory(const std::vector<FileBytes>& parts);

class Bands {
 public:
  // Of the chunks that overlap `wanted`, which ascends. At most `window` bytes at a time, one chunk
  // at least.
  Bands(const std::vector<std::int64_t>& file_bytes, const std::vector<FileBytes>& wanted,
        int ranks, std::int64_t window);

  int windows() const { return windows_; }  // of the rank that has most
  // What a rank handles in a window, in order; empty once it has done all. Adjacent chunks are one.
  // In memory each begins at a block (aligned_bytes.h) after the one before.
  std::vector<FileBytes> window(int rank, int number) const;

 private:
  std::vector<FileBytes> chunks_;
  std::size_t ranks_, chunks_per_window_;
  int windows_ = 0;
};

}  // namespace coshard
