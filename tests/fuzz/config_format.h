#pragma once
// config.json for its fuzzer and for the test that replays its corpus, as formats.h. Any thread.
#include <coshard/styles/nn/config_json.h>
#include "styles/nn/config_text.h"
#include "tests/fuzz/formats.h"

namespace coshard::testing {

// What is taken is written as it was read; in another dtype, and by hand, so that it is read again.
inline bool read_config_text(std::string_view bytes) {
  return is_taken([&] {
    const auto read_again = [](const nn::CausalLMConfig& config) {
      return nn::config_of_text(nn::config_text(config), "f", {});
    };
    nn::CausalLMConfig config = nn::config_of_text(std::string(bytes), "f", {});
    require_of_format(nn::config_text(config) == bytes, "the text");
    config.dtype = config.dtype == DType::F64 ? DType::BF16 : DType::F64;
    require_of_format(read_again(config) == config, "another dtype");
    config.read_from = {};
    require_of_format(read_again(config) == config, "by hand");
  });
}

}  // namespace coshard::testing
