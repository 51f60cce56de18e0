#pragma once
// Text of others, such as the message of a user's exception, as the library prints it. Pure.
#include <string>
#include <string_view>

namespace coshard {

// On one line, and without what a terminal obeys: a line end becomes a space, another control
// character "\x1b".
inline std::string printable(std::string_view text) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  const auto escape = [&](unsigned char c) {
    out += {'\\', 'x', kDigits[c >> 4], kDigits[c & 15]};
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    if (c == '\n') {
      out += ' ';
    } else if (c == 0xc2 && next >= 0x80 && next < 0xa0) {  // in UTF-8: U+0080 to U+009F
      escape(next);
      ++i;
    } else if ((c < 0x20 && c != '\t') || c == 0x7f) {
      escape(c);
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace coshard
