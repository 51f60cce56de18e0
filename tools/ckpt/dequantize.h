#pragma once
// Values of tensors in GGUF files. Pure.
#include <cstddef>
#include <span>

#include "tools/ckpt/gguf.h"

namespace coshard::tools {

// The elements of whole blocks, as floats: bit for bit what gguf.quants.dequantize of PyPI's gguf
// gives. `values` has room for those of all `blocks`.
void dequantize(GgufType type, std::span<const std::byte> blocks, std::span<float> values);

}  // namespace coshard::tools
