#pragma once
// `coshard ckpt convert` of a GGUF file to a Hugging Face folder.
#include <ostream>
#include <string>

#include "tools/ckpt/convert.h"

namespace coshard::tools {

bool is_gguf(const std::string& path);  // a file that begins with GGUF

// config.json, model.safetensors and the tokenizer's files (gguf_model.h, gguf_tokenizer.h). Values are dequantized to f32, or then cast to
// `dtype`. Memory of 64 MiB beside the header and texts. In main. Error{BadInput}: as Gguf, GgufModel and
// tokenizer_files; else as convert.
void convert_gguf(const std::string& from, const std::string& to, const ConvertOptions& options,
                  bool json, std::ostream& out);

}  // namespace coshard::tools
