#include "runtime/warn.h"

#include <iostream>
#include <mutex>
#include <unordered_set>

#include "runtime/printable.h"

namespace coshard {

void warn_once(const std::string& text) {
  static std::mutex mutex;
  static std::unordered_set<std::string> said;
  const std::scoped_lock lock(mutex);
  if (said.insert(text).second) std::cerr << "warning: " + printable(text) + "\n";
}

}  // namespace coshard
