#include "examples/train/compressors.h"

#include "profiling/child_process.h"

namespace coshard::train {

std::vector<Compressor> compressors_on(std::string_view text) {
  std::vector<Compressor> all;
  for (const std::string name : {"gzip", "bzip2", "xz"}) {
    const std::optional<std::string> packed = output_of({name, "-9", "-c"}, text);
    Compressor result{name + " -9", std::nullopt};
    if (packed && !text.empty())
      result.bits_per_byte =
          8.0 * static_cast<double>(packed->size()) / static_cast<double>(text.size());
    all.push_back(std::move(result));
  }
  return all;
}

}  // namespace coshard::train
