#include "examples/llama/utf8.h"

#include <utf8proc.h>
#include <algorithm>
#include <cstdlib>
#include <memory>

#include <coshard/runtime/error.h>

namespace coshard::llama {
namespace {

constexpr unsigned kContinuation = 0x80, kContinuationMask = 0xc0;

// A byte sequence at the start of `bytes`: a character, or what stands for one U+FFFD.
struct Piece {
  std::size_t bytes;
  bool valid;
  bool unfinished;  // the text ends within it
};

Piece first_piece(std::string_view bytes) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned lead = byte(0);
  if (lead < kContinuation) return {1, true, false};
  const std::size_t wanted = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4) return {1, false, false};
  // No overlong forms, no surrogates, nothing beyond U+10FFFF.
  unsigned least = kContinuation, most = 0xbf;
  if (lead == 0xe0) least = 0xa0;
  if (lead == 0xed) most = 0x9f;
  if (lead == 0xf0) least = 0x90;
  if (lead == 0xf4) most = 0x8f;
  for (std::size_t i = 1; i < wanted; ++i) {
    if (i == bytes.size()) return {i, false, true};
    if (byte(i) < least || byte(i) > most) return {i, false, false};
    least = kContinuation;
    most = 0xbf;
  }
  return {wanted, true, false};
}

const utf8proc_uint8_t* as_utf8proc(const char* text) {
  return reinterpret_cast<const utf8proc_uint8_t*>(text);
}

}  // namespace

Character first_character(std::string_view text) {
  const auto byte = static_cast<unsigned char>(text.front());
  if (byte < kContinuation) return {byte, 1};
  utf8proc_int32_t code = 0;
  const auto bytes =
      utf8proc_iterate(as_utf8proc(text.data()), static_cast<utf8proc_ssize_t>(text.size()), &code);
  return {code, static_cast<std::size_t>(bytes)};
}

Character last_character(std::string_view text) {
  std::size_t at = text.size() - 1;
  while ((static_cast<unsigned char>(text[at]) & kContinuationMask) == kContinuation) --at;
  return first_character(text.substr(at));
}

bool is_white_space(std::int32_t code) {
  constexpr std::int32_t kNextLine = 0x85;
  if ((code >= '\t' && code <= '\r') || code == kNextLine) return true;
  const utf8proc_category_t kind = utf8proc_category(code);
  return kind == UTF8PROC_CATEGORY_ZS || kind == UTF8PROC_CATEGORY_ZL ||
         kind == UTF8PROC_CATEGORY_ZP;
}

bool is_word(std::int32_t code) {
  constexpr std::int32_t kJoiners[] = {0x200c, 0x200d};
  // Letters within circles and squares are symbols by their category.
  constexpr std::int32_t kLetters[][2] = {
      {0x24b6, 0x24e9}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}};
  const utf8proc_category_t kind = utf8proc_category(code);
  const bool by_category = (kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_NL) ||
                           kind == UTF8PROC_CATEGORY_PC;
  return by_category || std::ranges::find(kJoiners, code) != std::end(kJoiners) ||
         std::ranges::any_of(kLetters, [&](auto& r) { return code >= r[0] && code <= r[1]; });
}

bool is_number(std::int32_t code) {
  const utf8proc_category_t kind = utf8proc_category(code);
  return kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL ||
         kind == UTF8PROC_CATEGORY_NO;
}

std::size_t invalid_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const Piece piece = first_piece(text.substr(at));
    if (!piece.valid) return at;
    at += piece.bytes;
  }
  return std::string_view::npos;
}

std::string valid_utf8(std::string_view bytes, std::size_t* unfinished) {
  std::string text;
  text.reserve(bytes.size());
  if (unfinished != nullptr) *unfinished = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const Piece piece = first_piece(bytes.substr(at));
    if (piece.unfinished && unfinished != nullptr) {
      *unfinished = piece.bytes;
      break;
    }
    text += piece.valid ? bytes.substr(at, piece.bytes) : "\xef\xbf\xbd";
    at += piece.bytes;
  }
  return text;
}

std::string nfc(std::string_view text) {
  // Below U+0300 each character is its own normal form, and none composes with the one before it.
  constexpr unsigned char kLeadOfU0300 = 0xcc;
  if (std::ranges::none_of(text,
                           [](char c) { return static_cast<unsigned char>(c) >= kLeadOfU0300; }))
    return std::string(text);
  utf8proc_uint8_t* made = nullptr;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const utf8proc_ssize_t bytes = utf8proc_map(
      as_utf8proc(text.data()), static_cast<utf8proc_ssize_t>(text.size()), &made, options);
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(made, &std::free);
  CS_REQUIRE(bytes >= 0, "NFC of a text of ", text.size(), " bytes: ", utf8proc_errmsg(bytes));
  return {reinterpret_cast<const char*>(made), static_cast<std::size_t>(bytes)};
}

}  // namespace coshard::llama
