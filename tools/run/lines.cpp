#include "tools/run/lines.h"

namespace coshard::job {
namespace {

constexpr std::size_t kLongestLine = 1 << 20;

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
    const std::size_t size = newline == std::string_view::npos ? lines.size() : newline + 1;
    all += prefix_;
    all += lines.substr(0, size);
    lines.remove_prefix(size);
  }
  out_(all);
}

}  // namespace coshard::job
