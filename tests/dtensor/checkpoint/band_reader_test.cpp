// Bands that are read, from the page cache and past it, and compared with their hashes.
#include "dtensor/checkpoint/band_reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

#include "tests/dtensor/checkpoint/stored_files.h"

namespace coshard::testing {
namespace {

void drop_cached(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY);
  ::fsync(file);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  ::close(file);
}

TEST(BandReader, ReadsWhatIsThereAndNamesWhatIsDamaged) {
  const ScratchFolder scratch;
  const std::int64_t elements = 3 * kChunk + 4099;
  std::string data(static_cast<std::size_t>(elements), '\0');
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 5 + i / 251);
  std::string file = stored_file(str_cat(R"({"w":{"dtype":"U8","shape":[)", elements,
                                         R"(],"data_offsets":[0,)", elements, "]}}"),
                                 data);
  const std::string path = scratch.write("m/model.safetensors", file), folder = scratch.path("m");
  auto manifest = std::make_shared<Manifest>();
  manifest->add("model.safetensors", file);
  const auto size = static_cast<std::int64_t>(file.size());
  const Bands bands({size}, {{0, 0, size}}, 1, 2 * kChunk);
  const auto read_all = [&] {
    const OpenFiles files{folder, manifest, ModelFolder(folder)};
    BandReader reader(files);
    std::string all;
    for (int window = 0; window < bands.windows(); ++window) {
      const std::vector<FileBytes> parts = bands.window(0, window);
      const AlignedBytes bytes(bytes_in_memory(parts));
      reader.read(parts, bytes);
      for (const FileBytes& part : parts)
        all.append(reinterpret_cast<const char*>(bytes.first(0).data()),
                   static_cast<std::size_t>(part.end - part.begin));
    }
    return all;
  };
  EXPECT_TRUE(read_all() == file);
  drop_cached(path);
  EXPECT_TRUE(read_all() == file);
  file[static_cast<std::size_t>(2 * kChunk)] ^= 1;
  scratch.write("m/model.safetensors", file);
  drop_cached(path);
  const std::string damaged = message_of(read_all);
  EXPECT_CONTAINS(damaged, str_cat("bytes ", 2 * kChunk, " to ", 3 * kChunk - 1));
  EXPECT_CONTAINS(damaged, "they hold 'w'");
  manifest.reset();
  EXPECT_TRUE(read_all() == file);
}

}  // namespace
}  // namespace coshard::testing
