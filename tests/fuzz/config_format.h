#pragma once
// config.json for its fuzzer and for the test that replays its corpus, as formats.h. Any thread.
#include <coshard/styles/nn/config_json.h>
#include "styles/nn/config_text.h"
#include "tests/fuzz/formats.h"

namespace coshard::testing {

// What `read` takes is written as it was read; in another dtype, and by hand, so that it is read again.
template <class Read>
bool is_written_as_read(std::string_view bytes, const Read& read) {
  return is_taken([&] {
    auto config = read(std::string(bytes), "f", {});
    require_of_format(nn::config_text(config) == bytes, "the text");
    config.dtype = config.dtype == DType::F64 ? DType::BF16 : DType::F64;
    require_of_format(read(nn::config_text(config), "f", {}) == config, "another dtype");
    config.read_from = {};
    require_of_format(read(nn::config_text(config), "f", {}) == config, "by hand");
  });
}

inline bool read_config_text(std::string_view bytes) {
  return is_written_as_read(bytes, nn::config_of_text) ||
         is_written_as_read(bytes, nn::gpt2_config_of_text);
}

}  // namespace coshard::testing
