#pragma once
// JSON of files that anyone may have written: RFC 8259 and nothing beyond. A byte before the first
// brace, NUL, what is no UTF-8, numbers from 1e308 on and more than 64 levels are errors. Pure.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace coshard {

// What a text says, in its order. A member is announced by key(); elements of arrays have none.
class JsonEvents {
 public:
  virtual ~JsonEvents() = default;
  virtual void begin_object() = 0;
  virtual void end_object() = 0;
  virtual void begin_array() = 0;
  virtual void end_array() = 0;
  virtual void key(std::string_view name) = 0;
  virtual void text(std::string_view value) = 0;
  virtual void count(std::uint64_t value) = 0;  // digits alone: no sign, point or exponent
  // Any other value, as it is written: a number, true, false or null.
  virtual void other(std::string_view value) = 0;
};

// Error{BadInput}: "what: …" with the byte, counted from 0, where the text is wrong; also what `events` throws.
// Whether keys are unique is up to `events`.
void read_json(std::string_view text, std::string_view what, JsonEvents& events);

// A text of such a file, as an error shows it: on one line, of at most 200 bytes.
std::string shortened(std::string_view text);
// Of letters, digits, '_', '-' and '.', not in front.
bool is_file_name(std::string_view name);
// "'a', 'b' and 3 more", of any number of them.
std::string names_text(const std::vector<std::string_view>& names);

}  // namespace coshard
