#include "examples/llama/byte_alphabet.h"

#include "examples/llama/utf8.h"

namespace coshard::llama {
namespace {

constexpr int kBytes = 256, kFirstStandIn = 256;
constexpr std::size_t kCharacters = 0x180;  // beyond all that stand for bytes

// Printable characters of Latin-1 stand for themselves, the others for those from U+0100 on.
bool stands_for_itself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

struct Alphabet {
  std::array<std::string, kBytes> characters;
  std::array<int, kCharacters> bytes;
};

Alphabet make_alphabet() {
  Alphabet made;
  made.bytes.fill(-1);
  int next = kFirstStandIn;
  for (int byte = 0; byte < kBytes; ++byte) {
    const int code = stands_for_itself(byte) ? byte : next++;
    made.bytes[static_cast<std::size_t>(code)] = byte;
    std::string& text = made.characters[static_cast<std::size_t>(byte)];
    if (code < 0x80) {
      text = static_cast<char>(code);
    } else {
      text = static_cast<char>(0xc0 | code >> 6);
      text += static_cast<char>(0x80 | (code & 0x3f));
    }
  }
  return made;
}

const Alphabet& alphabet() {
  static const Alphabet made = make_alphabet();
  return made;
}

}  // namespace

const std::array<std::string, 256>& byte_alphabet() { return alphabet().characters; }

std::optional<std::string> bytes_of_token(std::string_view token) {
  std::string bytes;
  while (!token.empty()) {
    const Character next = first_character(token);
    const auto code = static_cast<std::size_t>(next.code);
    if (code >= kCharacters || alphabet().bytes[code] < 0) return std::nullopt;
    bytes += static_cast<char>(alphabet().bytes[code]);
    token.remove_prefix(next.bytes);
  }
  return bytes;
}

}  // namespace coshard::llama
