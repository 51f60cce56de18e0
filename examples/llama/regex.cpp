#include "examples/llama/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <array>
#include <utility>

#include <coshard/runtime/error.h>
#include "dtensor/checkpoint/strict_json.h"

namespace coshard::llama {
namespace {

constexpr std::size_t kStackAtFirst = 32 << 10, kStackAtMost = 16 << 20;  // bytes, of compiled code

std::string reason_of(int code) {
  constexpr std::size_t kLongest = 256;
  std::array<PCRE2_UCHAR, kLongest> text = {};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

struct Regex::Compiled {
  std::string what;
  pcre2_code* code = nullptr;
  pcre2_match_data* data = nullptr;
  pcre2_match_context* context = nullptr;
  pcre2_jit_stack* stack = nullptr;
  bool has_jit = false;

  Compiled(std::string_view pattern, std::uint32_t options, std::string where)
      : what(std::move(where)) {
    pcre2_compile_context* compile = pcre2_compile_context_create(nullptr);
    pcre2_set_newline(compile, PCRE2_NEWLINE_LF);
    int error = 0;
    PCRE2_SIZE at = 0;
    code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), options,
                         &error, &at, compile);
    pcre2_compile_context_free(compile);
    CS_REQUIRE(code != nullptr, what,
               ": a regular expression cannot be compiled: ", reason_of(error), " at byte ", at,
               " of ", shortened(pattern));
    data = pcre2_match_data_create(1, nullptr);
    context = pcre2_match_context_create(nullptr);
    has_jit = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;
    if (!has_jit) return;
    stack = pcre2_jit_stack_create(kStackAtFirst, kStackAtMost, nullptr);
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Compiled() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
    pcre2_code_free(code);
  }
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;
};

Regex::Regex(std::unique_ptr<Compiled> compiled) : compiled_(std::move(compiled)) {}
Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

Regex Regex::of_pattern(std::string_view pattern, const std::string& what) {
  const std::string translated = pcre2_pattern(pattern, what);
  return Regex(std::make_unique<Compiled>(translated, PCRE2_UTF | PCRE2_NO_AUTO_CAPTURE, what));
}

Regex Regex::of_text(std::string_view text, const std::string& what) {
  return Regex(std::make_unique<Compiled>(text, PCRE2_UTF | PCRE2_LITERAL, what));
}

std::optional<Match> Regex::find(std::string_view text, std::size_t from) const {
  const Compiled& c = *compiled_;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const int found = c.has_jit ? pcre2_jit_match(c.code, subject, text.size(), from,
                                                PCRE2_NO_UTF_CHECK, c.data, c.context)
                              : pcre2_match(c.code, subject, text.size(), from, PCRE2_NO_UTF_CHECK,
                                            c.data, c.context);
  if (found == PCRE2_ERROR_NOMATCH) return std::nullopt;
  CS_REQUIRE(found >= 0, c.what, ": a regular expression failed on a text of ", text.size(),
             " bytes: ", reason_of(found));
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(c.data);
  return Match{ends[0], ends[1]};
}

}  // namespace coshard::llama
