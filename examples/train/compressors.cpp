#include "examples/train/compressors.h"

#include "profiling/child_process.h"

namespace coshard::train {

std::vector<Compressor> compressors_on(const std::string& path, std::size_t bytes) {
  std::vector<Compressor> all;
  for (const std::string name : {"gzip", "bzip2", "xz"}) {
    const std::vector<std::string> command = {name, "-9", "-c", "--", path};
    const std::optional<std::string> packed = output_of(command);
    Compressor result{name + " -9", std::nullopt};
    if (packed && bytes > 0)
      result.bits_per_byte = 8.0 * static_cast<double>(packed->size()) / static_cast<double>(bytes);
    all.push_back(std::move(result));
  }
  return all;
}

}  // namespace coshard::train
