#pragma once
// This rank's part of new files (bands.h), and of their hashes. One thread at a time.
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/checkpoint/aligned_bytes.h"
#include "dtensor/checkpoint/bands.h"
#include "dtensor/checkpoint/file.h"
#include "dtensor/checkpoint/file_layout.h"

namespace coshard {

class BandWriter {
 public:
  // `files` are in `folder` and have their sizes.
  BandWriter(std::string folder, std::vector<FileLayout::File> files, bool hashes)
      : folder_(std::move(folder)), files_(std::move(files)), hashes_chunks_(hashes) {}

  // A window, which follows the one before; `bytes` as bands.h has them in memory. Puts the heads of
  // files into them. Error{DeviceFailed}: the system's error.
  void write(const std::vector<FileBytes>& parts, const AlignedBytes& bytes);
  // Returns when all that was written is on the disk.
  void finish();
  // Of the chunks that were written, in their order.
  std::vector<std::uint64_t> take_hashes() { return std::move(hashes_); }

 private:
  void finish_first();
  OutputFile& file(std::size_t number);

  std::string folder_;
  std::vector<FileLayout::File> files_;
  bool hashes_chunks_;
  std::vector<std::uint64_t> hashes_;
  std::map<std::size_t, std::unique_ptr<OutputFile>> open_;
};

}  // namespace coshard
