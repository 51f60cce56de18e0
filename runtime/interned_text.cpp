#include "runtime/interned_text.h"

#include <mutex>
#include <set>

namespace coshard {

std::string_view interned(std::string text) {
  static std::mutex mutex;
  static auto* all = new std::set<std::string>();
  const std::scoped_lock lock(mutex);
  return *all->insert(std::move(text)).first;
}

}  // namespace coshard
