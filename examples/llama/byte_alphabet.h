#pragma once
// The characters that stand for the 256 bytes in vocabularies of byte-level BPE (GPT-2). Pure.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace coshard::llama {

// By byte, in UTF-8: "A" for 0x41, "Ġ" for a space.
const std::array<std::string, 256>& byte_alphabet();

// The bytes that a token's characters stand for; none: it has another character.
std::optional<std::string> bytes_of_token(std::string_view token);

}  // namespace coshard::llama
