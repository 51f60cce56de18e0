#include "styles/python_pattern.h"

#include <regex.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <optional>
#include <string>

namespace coshard {
namespace {

constexpr std::size_t kMostBytes = 1000;

// As an extended expression of POSIX with GNU's letters, which finds the same whole matches.
class Translation {
 public:
  explicit Translation(std::string_view text) : rest_(text) {}

  std::optional<std::string> run() {
    if (rest_.size() > kMostBytes || !std::ranges::all_of(rest_, is_ascii)) return std::nullopt;
    while (!rest_.empty())
      if (!step()) return std::nullopt;
    if (depth_ != 0) return std::nullopt;
    return "^(" + out_ + ")$";
  }

 private:
  static bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }
  static bool is_one_of(char c, std::string_view of) { return of.find(c) != std::string::npos; }
  char take() {
    const char c = rest_.front();
    rest_.remove_prefix(1);
    return c;
  }
  bool take_if(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }

  bool step() {
    const char c = take();
    if (c == '\\') return escape();
    if (c == '[') return set();
    if (is_one_of(c, "*+?{")) return quantifier(c);
    can_repeat_ = c != '(' && c != '|';
    if (c == '(' && rest_.starts_with("?") && !take_if("?:")) return false;
    depth_ += c == '(' ? 1 : c == ')' ? -1 : 0;
    after_group_ = c == ')';
    out_ += c;
    return depth_ >= 0;
  }
  bool escape() {
    if (rest_.empty()) return false;
    const char c = take();
    can_repeat_ = !is_one_of(c, "bB");
    after_group_ = false;
    if (c == 'd' || c == 'D') {
      out_ += c == 'd' ? "[0-9]" : "[^0-9]";
    } else if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      if (!is_one_of(c, "wWsSbB")) return false;
      out_ += std::string("\\") + c;
    } else {
      out_ += is_one_of(c, "<>'`") ? std::string(1, c) : std::string("\\") + c;  // GNU has others
    }
    return true;
  }
  bool set() {
    out_ += take_if("^") ? "[^" : "[";
    if (rest_.starts_with("]")) return false;
    while (!rest_.empty()) {
      const char c = take();
      out_ += c;
      if (c == ']') {
        can_repeat_ = true;
        after_group_ = false;
        return true;
      }
      if (c == '[') return false;
      if (c == '\\' && !escape_in_set()) return false;
    }
    return false;
  }
  bool escape_in_set() {
    out_.pop_back();
    const char c = rest_.empty() ? '\0' : take();
    if (c == 'd') return out_ += "0-9", true;
    if (c == 'w') return out_ += "a-zA-Z0-9_", true;
    if (c == 's') return out_ += " \t\n\r\f\v", true;
    out_ += c;
    return std::ispunct(static_cast<unsigned char>(c)) != 0 && !is_one_of(c, "-^[]");
  }
  bool quantifier(char c) {
    if (!can_repeat_) return false;
    out_ += c;
    if (c == '{' && !times()) return false;
    can_repeat_ = false;  // neither possessive nor twice
    take_if("?");         // lazy: the same whole matches
    return true;
  }
  // "3}", "3,}" or "3,5}" of a single character; groups would take memory as products do.
  bool times() {
    const std::size_t end = rest_.find('}'), comma = rest_.find(',');
    if (end == std::string_view::npos || after_group_) return false;
    for (std::size_t i = 0; i < end; ++i)
      if (i != comma && std::isdigit(static_cast<unsigned char>(rest_[i])) == 0) return false;
    if (end == 0 || end > 7 || comma == 0) return false;
    out_ += rest_.substr(0, end + 1);
    rest_.remove_prefix(end + 1);
    return true;
  }

  std::string_view rest_;
  std::string out_;
  int depth_ = 0;
  bool can_repeat_ = false, after_group_ = false;
};

}  // namespace

std::function<bool(std::string_view)> python_fullmatch(std::string_view pattern) {
  const std::optional<std::string> translated = Translation(pattern).run();
  if (!translated) return nullptr;
  auto made = std::make_unique<::regex_t>();
  if (::regcomp(made.get(), translated->c_str(), REG_EXTENDED | REG_NOSUB) != 0) return nullptr;
  const std::shared_ptr<const ::regex_t> compiled(made.release(), [](::regex_t* one) {
    ::regfree(one);
    delete one;
  });
  return [compiled](std::string_view text) {
    return ::regexec(compiled.get(), std::string(text).c_str(), 0, nullptr, 0) == 0;
  };
}

}  // namespace coshard
