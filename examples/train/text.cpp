#include "examples/train/text.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include <coshard/runtime/error.h>
#include "examples/train/options.h"
#include "kernels/philox.h"

namespace coshard::train {
namespace {

std::string read_file(const std::string& path) {
  std::error_code ignored;
  const bool exists = std::filesystem::exists(path, ignored);
  if (!exists && path == Options().text)
    fail(ErrorKind::BadInput,
         str_cat("there is no text ", path,
                 "; make it with: mkdir -p data && bible -f \"gen1:1-rev22:21\" > ", path,
                 " (Debian package bible-kjv), or name another with --text"));
  CS_REQUIRE(exists, "--text ", path, ": no such file");
  CS_REQUIRE(!std::filesystem::is_directory(path, ignored), "--text ", path, ": is a directory");
  std::ifstream file(path, std::ios::binary);
  CS_REQUIRE(file, "--text ", path, ": cannot be read");
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return std::move(bytes).str();
}

}  // namespace

Text::Text(const std::string& path, int seq)
    : bytes_(read_file(path)), seq_(static_cast<std::size_t>(seq)) {
  CS_REQUIRE(!bytes_.empty(), "--text ", path, ": is empty");
  for (std::size_t begin = 0; begin < bytes_.size(); begin += kHoldOut * kBlock) {
    const std::size_t end = std::min(bytes_.size(), begin + (kHoldOut - 1) * kBlock);
    if (end - begin <= seq_) continue;
    runs_.push_back({begin, end - begin - seq_});
    starts_ += runs_.back().starts;
  }
  CS_REQUIRE(starts_ > 0, "--text ", path, ": its ", bytes_.size(),
             " bytes hold no sequence of --seq ", seq, " + 1 bytes");
}

Batch Text::draw(std::uint64_t seed, std::uint64_t step, int batch) const {
  Batch drawn;
  for (int b = 0; b < batch; ++b) {
    const kernels::Words words = kernels::philox_block(seed, step, static_cast<std::uint64_t>(b));
    std::size_t at = (std::uint64_t{words[1]} << 32 | words[0]) % starts_;
    auto run = runs_.begin();
    for (; at >= run->starts; ++run) at -= run->starts;
    const auto* from = reinterpret_cast<const unsigned char*>(bytes_.data()) + run->begin + at;
    drawn.tokens.insert(drawn.tokens.end(), from, from + seq_);
    drawn.targets.insert(drawn.targets.end(), from + 1, from + seq_ + 1);
  }
  return drawn;
}

}  // namespace coshard::train
