#include "dtensor/checkpoint/strict_json.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>

#include <coshard/runtime/error.h>
#include "runtime/printable.h"

namespace coshard {
namespace {

constexpr int kMaxDepth = 64;

// The library's events as ours.
class Handler {
 public:
  Handler(std::string_view what, JsonEvents& events) : what_(what), events_(events) {}
  bool null() { return other("null"); }
  bool boolean(bool value) { return other(value ? "true" : "false"); }
  bool number_integer(std::int64_t value) {
    return other(value == 0 ? "-0" : std::to_string(value));
  }
  bool number_unsigned(std::uint64_t value) {
    events_.count(value);
    return true;
  }
  bool number_float(double value, const std::string& written) {
    // Parsers differ in what is the largest double.
    CS_REQUIRE(std::abs(value) < 1e308, what_, ": a number of ", written.size(),
               " characters is out of range");
    return other(written);
  }
  bool string(std::string& value) {
    events_.text(value);
    return true;
  }
  bool binary(nlohmann::json::binary_t&) { return false; }  // JSON has none
  bool key(std::string& name) {
    events_.key(name);
    return true;
  }
  bool start_object(std::size_t) {
    deeper();
    events_.begin_object();
    return true;
  }
  bool end_object() {
    --depth_;
    events_.end_object();
    return true;
  }
  bool start_array(std::size_t) {
    deeper();
    events_.begin_array();
    return true;
  }
  bool end_array() {
    --depth_;
    events_.end_array();
    return true;
  }
  bool parse_error(std::size_t at, const std::string&, const nlohmann::json::exception& error) {
    // It has read byte `at`, counted from 1.
    constexpr int kOverflow = 406;
    CS_REQUIRE(error.id != kOverflow, what_, ": a number that ends before byte ", at,
               " is out of range");
    // "[json.exception.parse_error.101] parse error at line 1, column 3: why; last read: '…'"
    std::string_view why = error.what();
    why = why.substr(std::min(why.find(": ") + 2, why.size()));
    fail(ErrorKind::BadInput, str_cat(what_, ": not JSON at byte ", at - 1, ": ",
                                      printable(why.substr(0, why.find("; last read")))));
  }

 private:
  bool other(std::string_view value) {
    events_.other(value);
    return true;
  }
  void deeper() {
    CS_REQUIRE(++depth_ <= kMaxDepth, what_, ": JSON of more than ", kMaxDepth, " levels");
  }

  std::string_view what_;
  JsonEvents& events_;
  int depth_ = 0;
};

}  // namespace

std::string shortened(std::string_view text) {
  constexpr std::size_t kMost = 200;
  if (text.size() <= kMost) return printable(text);
  std::size_t end = kMost;
  while ((static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;  // not within a character
  return str_cat(printable(text.substr(0, end)), "… (", text.size(), " bytes)");
}

void read_json(std::string_view text, std::string_view what, JsonEvents& events) {
  CS_REQUIRE(text.starts_with('{'), what, ": does not begin with '{'",
             text.starts_with("\xef\xbb\xbf") ? " but with a byte order mark" : "");
  // The parser would take it for the end.
  const std::size_t nul = text.find('\0');
  CS_REQUIRE(nul == std::string_view::npos, what, ": not JSON at byte ", nul, ": a zero byte");
  Handler handler(what, events);
  nlohmann::json::sax_parse(text.begin(), text.end(), &handler);
}

bool is_file_name(std::string_view name) {
  return !name.empty() && name.front() != '.' && std::ranges::all_of(name, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
  });
}

std::string names_text(const std::vector<std::string_view>& names) {
  constexpr std::size_t kNamed = 5;
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i == kNamed) return str_cat(text, " and ", names.size() - kNamed, " more");
    text += str_cat(i == 0 ? "'" : ", '", shortened(names[i]), "'");
  }
  return text;
}

}  // namespace coshard
