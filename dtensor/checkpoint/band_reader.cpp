#include "dtensor/checkpoint/band_reader.h"

#include <span>

#include <coshard/runtime/error.h>

namespace coshard {

void BandReader::read(const std::vector<FileBytes>& parts, const AlignedBytes& bytes) {
  std::span<std::byte> left = bytes.first(bytes_in_memory(parts));
  for (const FileBytes& part : parts) {
    const std::span<std::byte> own = left.first(static_cast<std::size_t>(part.end - part.begin));
    const InputFile& from = file(part.file);
    from.read_direct(static_cast<std::uint64_t>(part.begin), own);
    left = left.subspan(static_cast<std::size_t>(in_blocks(part.end - part.begin)));
    if (from_.manifest == nullptr) continue;
    const SafetensorsHeader& header = from_.folder.files()[part.file];
    const std::string name = from_.folder.name_of_file(part.file);
    Manifest::require_same(from_.manifest->file(from_.path, name), from.path(), part.begin, own,
                           [&](auto begin, auto end) { return header.names_in(begin, end); });
  }
}

const InputFile& BandReader::file(std::size_t number) {
  std::unique_ptr<InputFile>& open = open_[number];
  if (open != nullptr) return *open;
  open_.erase(open_.begin(), open_.find(number));  // bands ascend
  const SafetensorsHeader& header = from_.folder.files()[number];
  open = std::make_unique<InputFile>(header.path());
  if (open->identity() != header.identity())
    fail(ErrorKind::DeviceFailed,
         str_cat(header.path(), ": was replaced while it was read; load again"));
  return *open;
}

}  // namespace coshard
