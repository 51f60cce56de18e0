#pragma once
// What has to be done when memory is exhausted, too: that a rank has failed or ended.
#include <chrono>
#include <new>
#include <thread>

namespace coshard {

// Calls `work`, which may be called again after it has thrown, until it succeeds: ranks that end
// give memory back. After ten seconds std::bad_alloc is thrown.
template <class Work>
void insist(const Work& work) {
  constexpr std::chrono::milliseconds kNap{1};
  for (int naps = 0;; ++naps) {
    try {
      return work();
    } catch (const std::bad_alloc&) {
      if (naps == 10'000) throw;
    }
    std::this_thread::sleep_for(kNap);
  }
}

}  // namespace coshard
