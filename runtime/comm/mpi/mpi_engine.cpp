#include "runtime/comm/mpi/mpi_engine.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>
#include <thread>
#include <utility>

#include <coshard/runtime/error.h>
#include <coshard/runtime/observer.h>
#include "runtime/comm/mpi/broken_pipe.h"
#include "runtime/comm/mpi/mpi_calls.h"
#include "runtime/comm/transport.h"

namespace coshard {
namespace {

// A block is sent in pieces, so that counts stay small and the transport overlaps its copies.
// Between hosts the pieces are below MPI's eager limit, and few are in flight: with rendezvous, the
// replies would queue behind data of the other direction, and the link would carry one direction at
// a time (an all_reduce over 0.8 to 2.4 Gbit/s takes 1.05 to 1.15 times the wire time; with the
// pieces used within a host, 1.4 to 1.55).
constexpr std::size_t kPiece = 4 * 1024 * 1024, kSentAtOnce = 2;
constexpr std::size_t kPieceBetweenHosts = 60 * 1024, kSentAtOnceBetweenHosts = 8;

// Longer than a piece takes in shared memory, and than the typical skew between ranks. Any sleep
// takes at least about 0.1 ms.
constexpr std::int64_t kPatienceNs = 3'000'000;

}  // namespace

MpiEngine::MpiEngine(const MpiApi& api, std::int64_t (*clock)()) : api_(api), clock_(clock) {
  {
    const NoBrokenPipe no_pipe(true);  // inherited by the threads that MPI starts
    (void)check(api_.start(&place_));
  }
  tags_.assign(static_cast<std::size_t>(place_.size), kFirstTag);
  notices_.resize(static_cast<std::size_t>(place_.size));
  moved_ns_of_ = std::vector<std::atomic<std::int64_t>>(static_cast<std::size_t>(place_.size));
  may_wait_ns_of_ = std::vector<std::atomic<std::int64_t>>(static_cast<std::size_t>(place_.size));
  far_.resize(static_cast<std::size_t>(place_.size));
  for (int from = 0; from < place_.size; ++from)
    if (from != place_.rank) expect_notice(from);
}

bool MpiEngine::stop() {
  if (stopped_.exchange(true)) return false;
  const NoBrokenPipe no_pipe(true);
  bool done = false;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  try {
    while (in_flight() > 0 && !given_up_.load() && std::chrono::steady_clock::now() < end)
      if (!drive()) std::this_thread::yield();
    const std::scoped_lock lock(mutex_);
    done = in_flight() == 0 && !given_up_.load();
    if (done) (void)api_.stop();
  } catch (const Error&) {  // the job is ending anyway
  }
  broken_.store(true);  // no MPI call follows
  return done;
}

// Within a Calls, which reports the failure. Throws Error{CommFailed} if no handler is set.
bool MpiEngine::check(const char* problem) {
  if (problem == nullptr) return true;
  given_up_.store(true);
  if (broken_.load()) return false;
  const std::string text = str_cat(api_.implementation, ": ", problem);
  if (problem_.empty()) problem_ = text;
  if (!is_to_be_told_.load()) fail(ErrorKind::CommFailed, text);
  if (!broken_.exchange(true)) untold_ = text;
  return false;
}

void MpiEngine::halt() {
  given_up_.store(true);
  broken_.store(true);
  const std::scoped_lock lock(mutex_);  // waits for a thread inside MPI
}

void MpiEngine::forget() {
  halt();
  decltype(open_) dropped;  // these outlive the lock
  decltype(posting_) unposted;
  const std::scoped_lock lock(mutex_);
  dropped.swap(open_);
  unposted.swap(posting_);
}

void MpiEngine::on_notice(OnNotice told) {
  while (driving_.exchange(true, std::memory_order_acquire)) std::this_thread::yield();
  told_ = std::move(told);
  if (told_)
    for (auto& [from, notice] : std::exchange(unheard_, {}))
      if (!told_(from, notice)) unheard_.emplace_back(from, std::move(notice));
  driving_.store(false, std::memory_order_release);
}

std::uint64_t MpiEngine::add(Open open) {
  const std::uint64_t cookie = next_cookie_++;
  open_.emplace(cookie, std::move(open));
  return cookie;
}

void MpiEngine::on_in_flight(std::function<void()> told) {
  const std::scoped_lock lock(mutex_);
  told_in_flight_ = std::move(told);
  if (told_in_flight_ && in_flight() > 0) told_in_flight_();
}

// Within a Calls.
void MpiEngine::count_in(int operations) {
  if (in_flight_.fetch_add(operations) == 0 && told_in_flight_) told_in_flight_();
}

bool MpiEngine::sends_notices() {
  const std::scoped_lock lock(mutex_);
  return std::ranges::any_of(open_, [](const auto& open) { return !open.second.kept.empty(); });
}

// One receive at a time per process: of two, the later one could complete first.
void MpiEngine::expect_notice(int from) {
  Bytes& bytes = notices_[static_cast<std::size_t>(from)];
  bytes.resize(kMostNotice);
  (void)check(
      api_.receive(bytes.data(), bytes.size(), from, kNoticeTag, add({.notice_from = from})));
}

void MpiEngine::send_notice(int to, Bytes notice) {
  CS_REQUIRE(notice.size() <= kMostNotice, "a notice of ", notice.size(), " bytes is longer than ",
             kMostNotice);
  const Calls calls(*this);
  if (broken_.load()) return;
  moved_ns_.store(clock_(), std::memory_order_relaxed);
  const std::byte* data = notice.data();
  const std::size_t bytes = notice.size();
  count_in(1);
  const std::uint64_t cookie = add({.kept = std::move(notice)});  // its data do not move
  (void)check(api_.send(data, bytes, to, kNoticeTag, cookie));
}

int MpiEngine::next_tag(int to) {
  const std::scoped_lock lock(mutex_);
  int& tag = tags_[static_cast<std::size_t>(to)];
  tag = tag >= place_.most_tag ? kFirstTag : tag + 1;
  return tag;
}

void MpiEngine::send(const void* data, std::size_t bytes, int to, int tag,
                     std::function<void()> over, Memory memory) {
  pieces(true, const_cast<void*>(data), bytes, to, tag, std::move(over), std::move(memory));
}

void MpiEngine::receive(void* data, std::size_t bytes, int from, int tag,
                        std::function<void()> over, Memory memory) {
  pieces(false, data, bytes, from, tag, std::move(over), std::move(memory));
}

void MpiEngine::on_hosts(const std::vector<int>& hosts) {
  for (std::size_t process = 0; process < far_.size(); ++process)
    far_[process] = hosts[process] != hosts[static_cast<std::size_t>(place_.rank)];
  may_break_pipe_ = std::ranges::count(far_, true) > 0 || may_be_tcp(transport_settings());
}

// Pieces with equal tags arrive in order, block by block, but may complete out of order, so all are
// counted. Few are posted at a time: MPICH moves all posted pieces at once, so that none would
// complete before the last, and MPI polls every open request. Twice as many receives are posted, so
// that no send waits for one.
void MpiEngine::pieces(bool sends, void* data, std::size_t bytes, int peer, int tag,
                       std::function<void()> over, Memory memory) {
  const bool far = far_[static_cast<std::size_t>(peer)];
  const std::size_t piece = far ? kPieceBetweenHosts : kPiece;
  const std::size_t count = std::max<std::size_t>(1, (bytes + piece - 1) / piece);
  const auto block = std::make_shared<Block>();
  block->sends = sends;
  block->data = static_cast<char*>(data);
  block->bytes = bytes;
  block->peer = peer;
  block->tag = tag;
  block->piece = piece;
  block->at_once = (far ? kSentAtOnceBetweenHosts : kSentAtOnce) * (sends ? 1 : 2);
  block->pieces = block->unposted = count;
  block->left.store(count);
  block->over = std::move(over);
  block->memory = std::move(memory);
  const Calls calls(*this);
  count_in(static_cast<int>(count));
  if (const Stream stream(sends, peer, tag); count > block->at_once || posting_.contains(stream)) {
    auto& blocks = posting_[stream];
    blocks.push_back(block);
    if (blocks.size() == 1) begin_posting(block);
    return;
  }
  begin_posting(block);
}

// With mutex_ held, like the two below.
void MpiEngine::begin_posting(const std::shared_ptr<Block>& block) {
  for (std::size_t i = std::min(block->unposted, block->at_once); i > 0; --i) post_next(block);
}

// The last piece of this block has been posted: the next one's may follow.
void MpiEngine::end_posting(const Block& block) {
  const auto found = posting_.find(Stream(block.sends, block.peer, block.tag));
  if (found == posting_.end() || found->second.front().get() != &block) return;
  found->second.pop_front();
  if (found->second.empty())
    posting_.erase(found);
  else
    begin_posting(std::shared_ptr(found->second.front()));
}

void MpiEngine::post_next(const std::shared_ptr<Block>& block) {
  if (broken_.load() || block->unposted == 0) return;
  const std::size_t begin = (block->pieces - block->unposted--) * block->piece;
  const std::size_t size = std::min(block->piece, block->bytes - begin);
  const std::uint64_t cookie = add({.block = block});
  char* data = block->data + begin;
  (void)check(block->sends ? api_.send(data, size, block->peer, block->tag, cookie)
                           : api_.receive(data, size, block->peer, block->tag, cookie));
  if (block->unposted == 0) end_posting(*block);
}

void MpiEngine::end_piece(const std::shared_ptr<Block>& block) {
  note_piece(*block);
  {
    const Calls calls(*this);
    post_next(block);
  }
  if (block->left.fetch_sub(1) == 1 && block->over) block->over();
}

// Timed from its first piece: until then it may be waiting for the peer rather than the link.
void MpiEngine::note_piece(Block& block) {
  note_moved(block.peer);
  const std::int64_t now = clock_(), deadline = deadline_ns_.load();
  if (block.moves_since_ns == 0) block.moves_since_ns = now;
  if (deadline > 0 && now - block.moves_since_ns > deadline / 4) slow_ns_.store(now);
}

void MpiEngine::note_moved(int process) {
  const std::int64_t now = clock_(), deadline = deadline_ns_.load();
  moved_ns_of_[place(process)].store(now);
  if (now - std::exchange(run_ns_, now) > deadline / 8) run_since_ns_ = now;
  if (deadline > 0 && now - run_since_ns_ > deadline / 4) steady_ns_.store(now);
}

bool MpiEngine::data_move(int process, std::int64_t ns) const {
  return within(moved_ns_of_[place(process)], ns);
}

bool MpiEngine::drive() {
  if (driving_.exchange(true, std::memory_order_acquire)) return false;
  struct Done {
    std::atomic<bool>& driving;
    ~Done() { driving.store(false, std::memory_order_release); }
  } const end{driving_};
  const NoBrokenPipe no_pipe(may_break_pipe_);
  struct Over {
    Open open;
    std::size_t bytes;
  };
  std::vector<Over> over;
  {
    const Calls calls(*this);
    const MpiDone* done = nullptr;
    int count = 0;
    if (broken_.load() || !check(api_.poll(&done, &count))) return false;
    for (int i = 0; i < count; ++i) {
      const auto found = open_.find(done[i].cookie);
      over.push_back({std::move(found->second), done[i].bytes});
      open_.erase(found);
    }
  }
  for (Over& one : over) {
    if (one.open.notice_from >= 0) {
      const Bytes& bytes = notices_[static_cast<std::size_t>(one.open.notice_from)];
      if (!told_ || !told_(one.open.notice_from, std::span(bytes.data(), one.bytes)))
        unheard_.emplace_back(
            one.open.notice_from,
            Bytes(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(one.bytes)));
      const Calls calls(*this);
      if (!broken_.load()) expect_notice(one.open.notice_from);
      continue;
    }
    in_flight_.fetch_sub(1);
    if (one.open.block) end_piece(one.open.block);
  }
  if (over.empty()) return false;
  moved_ns_.store(clock_(), std::memory_order_relaxed);
  return true;
}

bool MpiEngine::drive_while_waiting() {
  constexpr int kPolls = 32;  // each may move a little, at less cost than a return to the caller
  const bool soon = clock_() - moved_ns_.load(std::memory_order_relaxed) < kPatienceNs;
  const NoBrokenPipe no_pipe(may_break_pipe_);
  for (int i = 0; i < (soon ? kPolls : 1); ++i)
    if (drive()) return true;
  if (halted() || !soon) return false;
  sched_yield();
  return true;
}

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
