#pragma once
// Regular expressions of tokenizer.json, which `tokenizers` gives to Oniguruma, by PCRE2. One thread
// at a time.
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace coshard::llama {

// The same expression in PCRE2's words: \s, \d and their complements as Unicode has them. Error{BadInput},
// with `what`: it uses what the two libraries read differently, or what is rare: escapes other than
// \s \S \d \D \n \r \t \f, general categories and punctuation; anchors; sets within sets; possessive intervals; named,
// capturing by number, or inline groups. Pure.
std::string pcre2_pattern(std::string_view pattern, const std::string& what);

struct Match {
  std::size_t begin, end;  // bytes
};

class Regex {
 public:
  // Error{BadInput}, with `what`: PCRE2 cannot compile it.
  static Regex of_pattern(std::string_view pattern, const std::string& what);
  static Regex of_text(std::string_view text, const std::string& what);  // matches this text alone
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  // The first match that begins at `from` or later in valid UTF-8. Error{BadInput}: PCRE2 gave up, with its reason.
  std::optional<Match> find(std::string_view text, std::size_t from) const;

 private:
  struct Compiled;
  explicit Regex(std::unique_ptr<Compiled> compiled);
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace coshard::llama
