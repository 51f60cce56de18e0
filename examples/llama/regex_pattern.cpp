// Oniguruma's expressions in PCRE2's words.
#include <algorithm>
#include <cctype>
#include <iterator>

#include <coshard/runtime/error.h>
#include "dtensor/checkpoint/strict_json.h"
#include "examples/llama/regex.h"

namespace coshard::llama {
namespace {

constexpr std::string_view kSpaces = R"(\t-\r\x{85}\p{Z})", kDigits = R"(\p{Nd})";

bool is_category(std::string_view name) {
  constexpr std::string_view kNames[] = {"C",  "Cc", "Cf", "Cn", "Co", "Cs", "L",  "Ll", "Lm", "Lo",
                                         "Lt", "Lu", "M",  "Mc", "Me", "Mn", "N",  "Nd", "Nl", "No",
                                         "P",  "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S",  "Sc",
                                         "Sk", "Sm", "So", "Z",  "Zl", "Zp", "Zs"};
  return std::ranges::find(kNames, name) != std::end(kNames);
}

class Translation {
 public:
  Translation(std::string_view pattern, const std::string& what) : left_(pattern), what_(what) {}

  std::string whole() {
    while (!left_.empty()) {
      switch (left_.front()) {
        case '\\': escape(false); break;
        case '[': set(); break;
        case '(': group(); break;
        case '{': interval(); break;
        case '^':
        case '$': refuse(left_.substr(0, 1));
        default: take(1);
      }
    }
    return std::move(made_);
  }

 private:
  [[noreturn]] void refuse(std::string_view part) const {
    fail(ErrorKind::BadInput,
         str_cat(what_, ": '", shortened(part), "' in a regular expression is not supported"));
  }
  void take(std::size_t bytes) {
    made_ += left_.substr(0, bytes);
    left_.remove_prefix(bytes);
  }
  void replace(std::size_t bytes, std::string_view by) {
    made_ += by;
    left_.remove_prefix(bytes);
  }

  void escape(bool in_set) {
    if (left_.size() < 2) refuse(left_);
    const char c = left_[1];
    if (c == 'p' || c == 'P') return category();
    const std::string_view inside = c == 's' || c == 'S' ? kSpaces : kDigits;
    if (c == 's' || c == 'd') return replace(2, in_set ? inside : str_cat("[", inside, "]"));
    if (!in_set && (c == 'S' || c == 'D')) return replace(2, str_cat("[^", inside, "]"));
    const bool plain = std::ispunct(static_cast<unsigned char>(c)) != 0;
    if (!plain && std::string_view("nrtf").find(c) == std::string_view::npos)
      refuse(left_.substr(0, 2));
    take(2);
  }

  // \p{Lu}, of general categories alone: PCRE2 takes the name of a script for more.
  void category() {
    const std::size_t end = left_.find('}');
    if (left_.size() < 3 || left_[2] != '{' || end == std::string_view::npos ||
        !is_category(left_.substr(3, end - 3)))
      refuse(left_.substr(0, std::min(end, left_.size() - 1) + 1));
    take(end + 1);
  }

  void set() {
    take(left_.starts_with("[^") ? 2 : 1);
    for (bool first = true; first || !left_.starts_with(']'); first = false) {
      if (left_.empty()) refuse("[");
      if (left_.starts_with('[') || left_.starts_with("&&")) refuse(left_.substr(0, 2));
      if (left_.starts_with('\\'))
        escape(true);
      else
        take(1);
    }
    take(1);
  }

  void group() {
    constexpr std::string_view kKnown[] = {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!"};
    if (left_.starts_with("(*")) refuse(left_.substr(0, 2));
    if (!left_.starts_with("(?")) return take(1);
    for (const std::string_view known : kKnown)
      if (left_.starts_with(known)) return take(known.size());
    refuse(left_.substr(0, 3));
  }

  // {2}, {2,} or {2,3}. What may follow means something else in each library.
  void interval() {
    std::size_t at = 1;
    const auto digits = [&] {
      const std::size_t begin = at;
      while (at < left_.size() && std::isdigit(static_cast<unsigned char>(left_[at])) != 0) ++at;
      return at > begin;
    };
    bool valid = digits();
    if (valid && left_.substr(at).starts_with(',')) {
      ++at;
      digits();
    }
    valid = valid && left_.substr(at).starts_with('}');
    const std::string_view after = left_.substr(std::min(at + 1, left_.size()));
    if (!valid || after.starts_with('+') || after.starts_with('?')) refuse(left_.substr(0, at + 2));
    take(at + 1);
  }

  std::string_view left_;
  const std::string& what_;
  std::string made_;
};

}  // namespace

std::string pcre2_pattern(std::string_view pattern, const std::string& what) {
  return Translation(pattern, what).whole();
}

}  // namespace coshard::llama
