#include "tools/run/lines.h"

namespace coshard::job {
namespace {

constexpr std::size_t kLongestLine = 1 << 20, kLongestQuote = 500;
// What std::terminate() prints of an exception. Handlers of SIGABRT, such as Open MPI's, print more.
constexpr std::string_view kUncaught = "  what():  ";

}  // namespace

void Lines::add(std::string_view text) {
  const std::size_t newline = text.rfind('\n');
  if (newline != std::string_view::npos) {
    begun_ += text.substr(0, newline + 1);
    write(begun_);
    begun_ = text.substr(newline + 1);
  } else {
    begun_ += text;
  }
  if (begun_.size() > kLongestLine) end();
}

void Lines::end() {
  if (begun_.empty()) return;
  if (!prefix_.empty()) begun_ += '\n';
  write(begun_);
  begun_.clear();
}

void Lines::write(std::string_view lines) {
  std::string all;
  while (!lines.empty()) {
    const std::size_t newline = lines.find('\n');
    const std::string_view line = lines.substr(0, newline);
    if (line.starts_with("error: ")) {
      error_ = line.substr(0, kLongestQuote);
      error_at_ = std::chrono::steady_clock::now();
    } else if (line.find_first_not_of(" \t\r") != line.npos && !line.starts_with("warning: ")) {
      last_ = line.substr(0, kLongestQuote);
      if (line.starts_with(kUncaught)) uncaught_ = last_;
    }
    const std::size_t size = newline == std::string_view::npos ? lines.size() : newline + 1;
    all += prefix_;
    all += lines.substr(0, size);
    lines.remove_prefix(size);
  }
  out_(all);
}

}  // namespace coshard::job
