#include "dtensor/checkpoint/band_writer.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "dtensor/checkpoint/manifest.h"

namespace coshard {

void BandWriter::write(const std::vector<FileBytes>& parts, const AlignedBytes& bytes) {
  std::span<std::byte> left = bytes.first(bytes_in_memory(parts));
  for (const FileBytes& part : parts) {
    const std::span<std::byte> own = left.first(static_cast<std::size_t>(part.end - part.begin));
    const std::string& head = files_[part.file].head;
    if (const auto begin = static_cast<std::size_t>(part.begin); begin < head.size())
      std::memcpy(own.data(), head.data() + begin, std::min(own.size(), head.size() - begin));
    constexpr auto kEach = static_cast<std::size_t>(kChunk);
    for (std::size_t at = 0; hashes_chunks_ && at < own.size(); at += kEach)
      hashes_.push_back(hash_of_chunk(own.subspan(at, std::min(kEach, own.size() - at))));
    file(part.file).write(part.begin, own);
    left = left.subspan(static_cast<std::size_t>(in_blocks(part.end - part.begin)));
  }
}

void BandWriter::finish() {
  while (!open_.empty()) finish_first();
}

void BandWriter::finish_first() {
  const std::unique_ptr<OutputFile> open = std::move(open_.begin()->second);
  open_.erase(open_.begin());
  open->sync();
  open->close();
}

OutputFile& BandWriter::file(std::size_t number) {
  std::unique_ptr<OutputFile>& open = open_[number];
  if (open != nullptr) return *open;
  while (open_.begin()->first < number) finish_first();  // bands ascend
  const FileLayout::File& file = files_[number];
  open = std::make_unique<OutputFile>(folder_ + "/" + file.name, file.bytes);
  return *open;
}

}  // namespace coshard
