#pragma once
// GGUF files for their fuzzer and for the test that replays its corpus, as formats.h. Any thread.
#include <cstring>

#include "tests/fuzz/formats.h"
#include "tools/ckpt/gguf_model.h"
#include "tools/ckpt/gguf_tokenizer.h"

namespace coshard::testing {

inline bool read_gguf(std::string_view bytes) {
  return is_taken([&] {
    const tools::Gguf file({"f", bytes.size(), [bytes](std::uint64_t at, std::span<std::byte> to) {
                              require_of_format(at + to.size() <= bytes.size(), "a place");
                              std::memcpy(to.data(), bytes.data() + at, to.size());
                            }});
    for (const tools::GgufTensor& tensor : file.tensors())
      require_of_format(tensor.begin + tensor.bytes <= bytes.size(), "bytes of a tensor");
    const tools::GgufModel model = tools::GgufModel::of(file);
    require_of_format(model.tensors.size() == file.tensors().size(), "all tensors");
    tools::tokenizer_files(file, model.config.vocab_size, model.config.max_position_embeddings);
  });
}

}  // namespace coshard::testing
