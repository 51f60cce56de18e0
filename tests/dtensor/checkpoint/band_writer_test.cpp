// Bands that are written past the page cache, with sizes that are no multiples of a block, and read
// again.
#include "dtensor/checkpoint/band_writer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "dtensor/checkpoint/manifest.h"
#include "tests/dtensor/checkpoint/stored_files.h"

namespace coshard::testing {
namespace {

std::string bytes_in(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(BandWriter, WritesFilesOfAnySize) {
  // Where O_DIRECT works, and in memory, where it may not.
  for (const char* place : {".", "/dev/shm"}) {
    if (!std::filesystem::exists(place)) continue;
    const std::string folder =
        (std::filesystem::path(place) / str_cat("coshard-band-writer-", ::getpid())).string();
    std::filesystem::create_directory(folder);
    const std::vector<FileLayout::File> files{
        {"a", "head of a", 2 * kChunk + 4097}, {"b", "head of b", 17}, {"c", "head of c", kChunk}};
    std::vector<std::int64_t> sizes;
    std::vector<FileBytes> whole;
    for (std::size_t i = 0; i < files.size(); ++i) {
      sizes.push_back(files[i].bytes);
      whole.push_back({i, 0, files[i].bytes});
      OutputFile::make(folder + "/" + files[i].name, files[i].bytes);
    }
    std::vector<std::string> want;
    for (const FileLayout::File& file : files) {
      std::string bytes(static_cast<std::size_t>(file.bytes), 'x');
      for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7 + i / 256);
      bytes.replace(0, file.head.size(), file.head);
      want.push_back(std::move(bytes));
    }
    const Bands bands(sizes, whole, 2, 2 * kChunk);
    std::vector<std::uint64_t> hashes;
    for (int rank = 0; rank < 2; ++rank) {
      BandWriter writer(folder, files, true);
      for (int window = 0; window < bands.windows(); ++window) {
        const std::vector<FileBytes> parts = bands.window(rank, window);
        const AlignedBytes bytes(bytes_in_memory(parts));
        std::byte* at = bytes.first(0).data();
        for (const FileBytes& part : parts) {
          std::memcpy(at, want[part.file].data() + part.begin,
                      static_cast<std::size_t>(part.end - part.begin));
          if (part.begin == 0) std::memset(at, 0, files[part.file].head.size());
          at += in_blocks(part.end - part.begin);
        }
        writer.write(parts, bytes);
      }
      writer.finish();
      for (const std::uint64_t hash : writer.take_hashes()) hashes.push_back(hash);
    }
    Manifest manifest;
    for (std::size_t i = 0; i < files.size(); ++i) {
      EXPECT_TRUE(bytes_in(folder + "/" + files[i].name) == want[i]) << place << i;
      manifest.add(files[i].name, want[i]);
    }
    std::vector<std::uint64_t> all;
    for (const auto& [name, file] : manifest.files())
      all.insert(all.end(), file.chunks.begin(), file.chunks.end());
    EXPECT_EQ(hashes, all);
    std::filesystem::remove_all(folder);
  }
}

}  // namespace
}  // namespace coshard::testing
