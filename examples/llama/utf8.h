#pragma once
// UTF-8 and properties of characters. Pure.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace coshard::llama {

struct Character {
  std::int32_t code;
  std::size_t bytes;
};
// The one that valid text begins with, or ends with. Precondition: the text is not empty.
Character first_character(std::string_view text);
Character last_character(std::string_view text);

bool is_white_space(std::int32_t code);  // of Unicode
bool is_word(std::int32_t code);         // letters, marks, digits, connectors
bool is_number(std::int32_t code);       // categories Nd, Nl and No

// The first byte that is not UTF-8; npos: it is valid.
std::size_t invalid_utf8(std::string_view text);

// U+FFFD for each piece that is not UTF-8, as Unicode recommends: of one character's valid beginning,
// or one byte. With `unfinished`, a valid beginning at the end is left out; that many bytes are stored.
std::string valid_utf8(std::string_view bytes, std::size_t* unfinished = nullptr);

// The normalization form NFC of valid text.
std::string nfc(std::string_view text);

}  // namespace coshard::llama
