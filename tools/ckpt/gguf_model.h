#pragma once
// What the tensors and numbers of a GGUF file are called in a Hugging Face folder. Any thread.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <coshard/styles/nn/causal_lm_config.h>
#include "tools/ckpt/gguf.h"

namespace coshard::tools {

struct NamedTensor {
  std::string name;    // in the folder
  std::size_t tensor;  // its number in the file
  std::int64_t pairs_of_heads =
      0;  // > 0: so many heads, whose rows lie in pairs for rotary positions
};

struct GgufModel {
  nn::CausalLMConfig config;  // dtype: F32
  std::vector<NamedTensor> tensors;

  // Of the architectures llama and qwen2. Error{BadInput}, one line with file, key or tensor: another
  // architecture; a key of it that changes the model and is not supported; a tensor that is missing,
  // unknown (rope_freqs.weight too) or of another shape than the numbers say.
  static GgufModel of(const Gguf& file);
};

}  // namespace coshard::tools
