#pragma once
// This rank's part of files that are read (bands.h), compared with their hashes. One thread at a time.
#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "dtensor/checkpoint/aligned_bytes.h"
#include "dtensor/checkpoint/bands.h"
#include "dtensor/checkpoint/file.h"
#include "dtensor/checkpoint/open_files.h"

namespace coshard {

class BandReader {
 public:
  explicit BandReader(const OpenFiles& from) : from_(from) {}  // outlives this
  // A window, which follows the one before, as bands.h has it in memory. Error{BadInput}: bytes that
  // are not those that were written. Error{DeviceFailed}: the system's error; another file has come
  // in place of one whose header was read.
  void read(const std::vector<FileBytes>& parts, const AlignedBytes& bytes);

 private:
  const InputFile& file(std::size_t number);

  const OpenFiles& from_;
  std::map<std::size_t, std::unique_ptr<InputFile>> open_;
};

}  // namespace coshard
