#include "runtime/comm/nccl/nccl_watchdog.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/comm/nccl/nccl_communicator.h"

namespace coshard {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{10};

// The mutex is held during a check: while another thread holds it, no communicator is in use.
struct Watch {
  std::mutex mutex;
  std::condition_variable_any ended;
  std::vector<NcclCommunicator*> communicators;
  std::jthread thread;
};

Watch& watch() {
  static auto* all = new Watch();  // outlives communicators that end at exit
  return *all;
}

void look_after(const std::stop_token& stop) {
  pthread_setname_np(pthread_self(), "nccl watchdog");
  Watch& all = watch();
  std::unique_lock lock(all.mutex);
  while (!all.ended.wait_for(lock, stop, kBetweenLooks, [&] { return stop.stop_requested(); }))
    for (NcclCommunicator* communicator : all.communicators) communicator->watch();
}

}  // namespace

void begin_nccl_watch(NcclCommunicator& communicator) {
  const std::scoped_lock lock(watch().mutex);
  watch().communicators.push_back(&communicator);
  if (!watch().thread.joinable()) watch().thread = std::jthread(look_after);
}

void end_nccl_watch(NcclCommunicator& communicator) noexcept {
  std::jthread last;  // stopped and joined outside the mutex
  const std::scoped_lock lock(watch().mutex);
  if (std::erase(watch().communicators, &communicator) > 0 && watch().communicators.empty())
    last = std::move(watch().thread);
}

}  // namespace coshard
