#include "profiling/bench/peer.h"

#include <cctype>
#include <cstdlib>
#include <optional>

#include <coshard/runtime/error.h>
#include "profiling/child_process.h"

namespace coshard::bench {
namespace {

// Enough of JSON for flat and nested objects of numbers and strings.
class NumberReader {
 public:
  explicit NumberReader(const std::string& text) : text_(text) {}
  std::map<std::string, double> read() {
    object("");
    return std::move(found_);
  }

 private:
  char peek() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  std::string string() {
    std::string out;
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) out += text_[at_];
    ++at_;
    return out;
  }
  void object(const std::string& prefix) {
    if (peek() != '{') return;
    ++at_;
    while (peek() == '"') {
      const std::string key = prefix + string();
      if (peek() != ':') return;
      ++at_;
      value(key);
      if (peek() == ',') ++at_;
    }
    if (peek() == '}') ++at_;
  }
  void value(const std::string& key) {
    const char first = peek();
    if (first == '{') return object(key + ".");
    if (first == '"') {
      string();
      return;
    }
    char* end = nullptr;
    const double number = std::strtod(text_.c_str() + at_, &end);
    const auto stop = static_cast<std::size_t>(end - text_.c_str());
    if (stop > at_) {
      found_[key] = number;
      at_ = stop;
    } else {
      while (at_ < text_.size() && text_[at_] != ',' && text_[at_] != '}') ++at_;
    }
  }

  const std::string& text_;
  std::size_t at_ = 0;
  std::map<std::string, double> found_;
};

}  // namespace

std::map<std::string, double> numbers_of(const std::string& json) {
  return NumberReader(json).read();
}

std::map<std::string, double> run_peer(const std::string& script,
                                       const std::vector<std::string>& arguments) {
  std::vector<std::string> command = {"python3", script};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const std::optional<std::string> text = output_of(command);
  if (!text)
    fail(ErrorKind::Unsupported, cat("peer: python3 ", script, " ", arguments[0], " failed"));
  const std::size_t brace = text->find('{');
  if (brace == std::string::npos)
    fail(ErrorKind::Unsupported, cat("peer: ", script, " printed no JSON object"));
  return numbers_of(text->substr(brace));
}

}  // namespace coshard::bench
