#pragma once
// This rank's part of files that are read (bands.h), compared with their hashes. One thread at a time.
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dtensor/checkpoint/aligned_bytes.h"
#include "dtensor/checkpoint/bands.h"
#include "dtensor/checkpoint/file.h"
#include "dtensor/checkpoint/manifest.h"
#include "dtensor/checkpoint/model_folder.h"

namespace coshard {

class BandReader {
 public:
  // `path`: of the folder. All outlive this.
  BandReader(const ModelFolder& folder, const std::string& path,
             const std::optional<Manifest>& manifest)
      : folder_(folder), path_(path), manifest_(manifest) {}
  // A window, which follows the one before, as bands.h has it in memory. Error{BadInput}: bytes that
  // are not those that were written. Error{DeviceFailed}: the system's error; another file has come
  // in place of one whose header was read.
  void read(const std::vector<FileBytes>& parts, const AlignedBytes& bytes);

 private:
  const InputFile& file(std::size_t number);

  const ModelFolder& folder_;
  const std::string& path_;
  const std::optional<Manifest>& manifest_;
  std::map<std::size_t, std::unique_ptr<InputFile>> open_;
};

}  // namespace coshard
