// Between a run that failed and the next one: ends what the first has left in flight.
#include <algorithm>
#include <cstring>
#include <set>
#include <thread>
#include <utility>

#include <coshard/runtime/error.h>
#include "runtime/comm/mpi/mpi_calls.h"

namespace coshard {
namespace {

template <class Block>
std::string transfer_text(const Block& block) {
  return str_cat(block.sends ? "a send of " : "a receive of ", block.bytes, " bytes ",
                 block.sends ? "to" : "from", " process ", block.peer);
}

}  // namespace

// While no thread drives.
template <class F>
void MpiEngine::beside_drivers(const F& f) {
  while (driving_.exchange(true, std::memory_order_acquire)) std::this_thread::yield();
  f();
  driving_.store(false, std::memory_order_release);
}

// MPI would read or write memory that is gone, or that the program has since filled.
std::string MpiEngine::obstacle_in(const Block& block) const {
  const auto& owner = block.memory.owner;
  if (owner == nullptr || block.memory.is_lent)
    return str_cat(transfer_text(block), " is in flight in memory of the program");
  if (block.sends || !block.memory.is_tensor) return "";
  std::set<const Block*> own;
  for (const auto& [cookie, open] : open_)
    if (open.block != nullptr && open.block->memory.owner == owner) own.insert(open.block.get());
  if (owner.use_count() <= static_cast<long>(own.size())) return "";
  return str_cat(transfer_text(block), " is in flight into a tensor that outlives its run");
}

std::string MpiEngine::obstacle() {
  std::vector<std::function<void()>> dropped;  // may own tensors and groups
  decltype(posting_) unposted;
  beside_drivers([&] {
    const std::scoped_lock lock(mutex_);
    for (auto& [cookie, open] : open_)
      if (open.block != nullptr) {
        open.block->unposted = 0;
        dropped.push_back(std::exchange(open.block->over, nullptr));
      }
    unposted.swap(posting_);
  });
  dropped.clear();
  unposted.clear();
  const std::scoped_lock lock(mutex_);
  if (!problem_.empty()) return problem_;
  for (const auto& [cookie, open] : open_)
    if (open.block != nullptr)
      if (const std::string found = obstacle_in(*open.block); !found.empty()) return found;
  return "";
}

void MpiEngine::renew(std::uint64_t run) {
  std::vector<std::uint64_t> receives;
  std::vector<bool> expects(notices_.size());
  beside_drivers([&] {
    const std::scoped_lock lock(mutex_);
    renewing_ = run;
    rests_.assign(notices_.size(), Rest::Unknown);
    rests_[place(process())] = Rest::Over;
    int left = 0;
    for (const auto& [cookie, open] : open_) {
      if (open.notice_from >= 0)
        expects[place(open.notice_from)] = true;
      else
        ++left;
      if (open.block != nullptr && !open.block->sends) receives.push_back(cookie);
    }
    in_flight_.store(left);
    broken_.store(false);
  });
  const Calls calls(*this);
  for (const std::uint64_t cookie : receives)
    if (!check(api_.cancel(cookie))) return;
  for (int peer = 0; peer < processes() && !broken_.load(); ++peer) {
    if (peer == process()) continue;
    if (!expects[place(peer)]) expect_notice(peer);
    Bytes number(sizeof run);
    std::memcpy(number.data(), &run, sizeof run);
    const std::byte* data = number.data();
    count_in(1);
    const std::uint64_t cookie = add({.kept = std::move(number)});
    (void)check(api_.send(data, sizeof run, peer, kRestTag, cookie));
  }
}

// Takes the first message of `from` that no receive takes; false: there is none now. The message
// that renew() sends there is the last one.
bool MpiEngine::take_unreceived(int from) {
  const auto memory = std::make_shared<Bytes>();
  int tag = -1;
  std::size_t bytes = 0;
  {
    const Calls calls(*this);
    if (broken_.load() || rests_[place(from)] != Rest::Unknown) return false;
    if (!check(api_.probe(from, &tag, &bytes))) return false;
    if (tag < 0 || tag == kNoticeTag) return false;  // a receive is posted for notices
    if (tag == kRestTag) rests_[place(from)] = Rest::Ending;
  }
  memory->resize(bytes);
  const auto over = [this, memory, from, tag] {
    std::uint64_t run = 0;
    if (tag != kRestTag) return;
    std::memcpy(&run, memory->data(), std::min(sizeof run, memory->size()));
    const std::scoped_lock lock(mutex_);
    rests_[place(from)] = run == renewing_ ? Rest::Over : Rest::Unknown;
  };
  const auto block = std::make_shared<Block>();
  block->data = reinterpret_cast<char*>(memory->data());
  block->bytes = block->piece = bytes;
  block->peer = from;
  block->tag = tag;
  block->at_once = block->pieces = block->unposted = 1;
  block->left.store(1);
  block->over = over;
  block->memory = {memory};
  const Calls calls(*this);
  count_in(1);
  post_next(block);
  return true;
}

bool MpiEngine::renewed() {
  for (int peer = 0; peer < processes(); ++peer)
    while (take_unreceived(peer)) {
    }
  (void)drive();
  const std::scoped_lock lock(mutex_);
  const bool over = std::ranges::all_of(rests_, [](Rest rest) { return rest == Rest::Over; });
  if (!over || in_flight() > 0 || halted()) return false;
  given_up_.store(false);
  return true;
}

std::string MpiEngine::unended() {
  const std::scoped_lock lock(mutex_);
  for (const auto& [cookie, open] : open_)
    if (open.block != nullptr) return transfer_text(*open.block);
  const auto found = std::ranges::find_if_not(rests_, [](Rest rest) { return rest == Rest::Over; });
  return str_cat("the last message of process ", found - rests_.begin());
}

}  // namespace coshard
