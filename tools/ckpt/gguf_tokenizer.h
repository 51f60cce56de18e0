#pragma once
// The files of a tokenizer that a GGUF file implies, for a Hugging Face folder. Any thread.
#include "tools/ckpt/gguf.h"
#include "tools/ckpt/write_model.h"

namespace coshard::tools {

// tokenizer.json, tokenizer_config.json (special tokens, chat template) and generation_config.json (ends of
// generation). Byte-level BPE alone, whose words are cut as tokenizer.ggml.pre says: gpt-2, llama-bpe, qwen2
// or smollm. Tokens of type 3 are special. Error{BadInput}, one line with file and key: another model or
// pre; lists that are missing or of unequal sizes; ids beyond the vocabulary.
TextFiles tokenizer_files(const Gguf& file, std::int64_t vocab_size, std::int64_t context);

}  // namespace coshard::tools
