// How calls wait for a device. A driver has one lock for each context, and some calls hold it while
// they wait for the device; every call that queues work needs it (torchcomms#2334: a copy on
// another stream waits behind a first launch that waits for the device). So a stream that waits for
// work not yet queued, and a call that waits for the device, deadlock.
#include <algorithm>

#include "tests/support/fake_cuda/fake_driver.h"

namespace coshard::testing {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

void FakeDriver::forget() {
  const auto held = lock();
  used_.clear();
  enabled_.clear();
  forget_accesses();
}

void FakeDriver::await_context(std::unique_lock<std::recursive_mutex>& held, int device) {
  std::thread::id& holder = contexts_[device];
  more_.wait(held,
             [&] { return holder == std::thread::id() || holder == std::this_thread::get_id(); });
}

FakeDriver::Stream& FakeDriver::queue_on(void* handle) {
  auto held = lock();
  Stream& on = stream(handle);
  await_context(held, on.device);
  return on;
}

bool FakeDriver::wait_for_device(int device, const std::string& call) {
  auto held = lock();
  std::vector<OpRef> ops;
  for (const auto& stream : streams_)
    if (stream->device == device && !stream->queue.empty()) ops.push_back(stream->queue.back());
  return wait_for_all(held, device, ops, call);
}

bool FakeDriver::wait_for(const OpRef& op, const std::string& call) {
  auto held = lock();
  return op == nullptr || op->done || wait_for_all(held, op->stream->device, {op}, call);
}

bool FakeDriver::may_wait_for_device(int device, const std::string& call) {
  {
    const auto held = lock();
    if (std::uniform_real_distribution<>(0, 1)(random_) >= waiting_) return true;
  }
  return wait_for_device(device, call);
}

bool FakeDriver::wait_for_all(std::unique_lock<std::recursive_mutex>& held, int device,
                              const std::vector<OpRef>& ops, const std::string& call) {
  await_context(held, device);
  contexts_[device] = std::this_thread::get_id();
  const auto blocked = [this](const OpRef& op) { return !force(op); };
  auto since = Clock::now();
  std::uint64_t seen = progress_;
  auto first = std::ranges::find_if(ops, blocked);
  while (first != ops.end()) {
    if (std::exchange(seen, progress_) != progress_) since = Clock::now();
    if (Clock::now() - since > limit_) {
      complain("the work of cuda:" + std::to_string(device) + " cannot end: " + cause_of(**first) +
               ", while " + call + " holds the context");
      break;
    }
    more_.wait_for(held, std::chrono::milliseconds(1));
    first = std::ranges::find_if(ops, blocked);
  }
  contexts_[device] = std::thread::id();
  more_.notify_all();
  return first == ops.end();
}

// Follows the op's dependencies to the one that is stuck.
std::string FakeDriver::cause_of(const Op& op) const {
  const Op* at = &op;
  std::string path;
  for (int hops = 0; hops < 50; ++hops) {
    at = at->stream->queue.front().get();
    const std::string name = "stream " + std::to_string(at->stream->id);
    const auto before =
        std::ranges::find_if(at->after, [](const OpRef& other) { return !other->done; });
    if (before != at->after.end()) {
      path += name + " waits for an event of ";
      at = before->get();
    } else if (!issuable(*at)) {
      return path + name + " waits for a flag";
    } else if (const Stream* other = blocker_of(*at); other != nullptr) {
      path += name + " is in a hardware queue behind ";
      at = other->queue.front().get();
    } else if (at->gate != nullptr) {
      return path + name + " waits for its peers";
    } else {
      return path + name + " has work that never ends";
    }
  }
  return path + "…";
}

bool FakeDriver::first_use(int device, const void* key) {
  const auto held = lock();
  return used_.insert({device, key}).second;
}

std::size_t& FakeDriver::shared_limit(int device, const void* function) {
  const auto held = lock();
  return shared_limits_[{device, function}];
}

void FakeDriver::set_peer_access(int device, int peer, bool possible) {
  const auto held = lock();
  if (possible) {
    unreachable_.erase({device, peer});
  } else {
    unreachable_.insert({device, peer});
  }
}

bool FakeDriver::can_reach(int device, int peer) const {
  const auto held = lock();
  return peer_access_ && device != peer && !unreachable_.contains({device, peer});
}

bool FakeDriver::enable_peer(int device, int peer) {
  const auto held = lock();
  return enabled_.insert({device, peer}).second;
}

bool FakeDriver::reaches(int device, int peer) const {
  const auto held = lock();
  return device == peer || enabled_.contains({device, peer});
}

}  // namespace coshard::testing
