#include "runtime/comm/local/ticket.h"

#include <sched.h>

#include <algorithm>

#include "runtime/comm/collective.h"
#include "runtime/comm/local/units.h"
#include "runtime/error.h"

namespace coshard {
namespace {

inline void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// How to wait before sleeping: spin for as long as a sleep and a wake-up cost. Now and then the
// core is offered to others, since the peer may be queued behind this thread (a woken thread starts
// on the core of its waker); with more ranks than cores that is the rule, and it is offered at
// once.
class Patience {
 public:
  explicit Patience(bool crowded) : pauses_per_yield_(crowded ? 16 : 32) {}
  bool spin(std::int64_t begin_ns) {
    if (spent_) return false;
    pause_cpu();
    if (++turns_ % pauses_per_yield_ != 0) return true;
    sched_yield();
    spent_ = now_ns() - begin_ns > kSpinNs;
    return true;
  }

 private:
  static constexpr std::int64_t kSpinNs = 40'000;
  int pauses_per_yield_;  // a pause is 10 to 60 ns
  int turns_ = 0;
  bool spent_ = false;
};

}  // namespace

LocalTicket::LocalTicket(std::shared_ptr<LocalCommunicator> communicator,
                         const Collective& collective, std::uint64_t number)
    : communicator_(std::move(communicator)),
      awaited_(collective, number, communicator_->world_rank()) {}

template <class Done, class Help>
void LocalTicket::block(const Done& done, const Help& help, bool for_part) {
  LocalGroup& group = communicator_->group();
  Patience patience(group.registry()->crowded);
  std::int64_t begin_ns = 0;
  for (;;) {
    if (group.poisoned()) fail_poisoned();
    if (done()) return;
    if (help()) continue;
    if (begin_ns == 0) begin_ns = now_ns();
    if (patience.spin(begin_ns)) continue;
    LocalGroup::Sleeper sleeper(group, for_part);
    if (group.poisoned() || done() || help()) continue;
    fail_if_lost();
    const std::int64_t timeout_ns = communicator_->timeout_ns();
    if (timeout_ns > 0 && now_ns() >= begin_ns + timeout_ns) fail_timeout(begin_ns);
    sleeper.until(timeout_ns > 0 ? begin_ns + timeout_ns : 0);
  }
}

bool LocalTicket::ready() {
  if (settled_ || communicator_->group().poisoned() || complete()) return true;
  help();
  return complete();
}

void LocalTicket::wait() {
  if (settled_) return;
  const std::int64_t begin_ns = event_.id != 0 ? now_ns() : 0;
  if (Observer* watching = event_.id != 0 ? communicator_->observer() : nullptr)
    watching->awaiting(event_);
  block([this] { return complete(); }, [this] { return help() || communicator_->help_any(); },
        false);
  settle(begin_ns);
}

void LocalTicket::settle(std::int64_t begin_ns) {
  if (settled_) return;
  settled_ = true;
  communicator_->retire();
  if (event_.id == 0) return;
  if (Observer* watching = communicator_->observer()) {
    const std::int64_t now = now_ns();
    // Ranks that are not watched do not take the time; then it was over by now at the latest.
    const std::int64_t over = over_ns() > 0 ? std::min(over_ns(), now) : now;
    watching->ready(event_, std::min(begin_ns, now), over, now);
  }
}

void LocalTicket::check(std::int64_t waited_ns) {
  if (communicator_->group().poisoned()) fail_poisoned();
  if (settled_ || complete()) return;
  fail_if_lost();
  const std::int64_t timeout_ns = communicator_->timeout_ns();
  if (timeout_ns > 0 && waited_ns >= timeout_ns) fail_timeout(now_ns() - waited_ns);
}

void LocalTicket::check_part(int part) const {
  CS_REQUIRE(part >= 0 && part < parts(), awaited_.text(communicator_->group()), ": part ", part,
             " is not one of ", parts());
}

bool LocalTicket::part_ready(int part) {
  check_part(part);
  return ready();
}

void LocalTicket::wait_part(int part) {
  check_part(part);
  wait();
}

void LocalTicket::fail_poisoned() {
  communicator_->abandon();
  throw awaited_.poisoned(communicator_->group());
}

void LocalTicket::fail_timeout(std::int64_t begin_ns) {
  LocalGroup& group = communicator_->group();
  const std::string message = awaited_.timeout_text(group, now_ns() - begin_ns, missing_text());
  if (!group.poison(message)) fail_poisoned();
  communicator_->abandon();
  throw Error(ErrorKind::Timeout, message);
}

void LocalTicket::fail_if_lost() {
  const int rank = lost();
  if (rank < 0) return;
  LocalGroup& group = communicator_->group();
  group.poison(awaited_.lost_text(group, rank));
  fail_poisoned();
}

JobTicket::JobTicket(std::shared_ptr<LocalCommunicator> communicator, const Collective& collective,
                     std::uint64_t number, Job* job)
    : LocalTicket(std::move(communicator), collective, number), job_(job) {
  const int ranks = communicator_->size();
  early_ = awaited_.kind == CollectiveKind::AllGather &&
           !is_one_shot(collective, ranks, communicator_->rank());
  if (job_ != nullptr) job_->references.fetch_add(1, std::memory_order_relaxed);
}

JobTicket::~JobTicket() {
  if (job_ != nullptr) communicator_->group().release(*job_);
}

int JobTicket::parts() const {
  return awaited_.kind == CollectiveKind::AllGather ? communicator_->size() : 1;
}

bool JobTicket::help() {
  if (job_ == nullptr) return false;
  if (communicator_->group().help(*job_)) return true;
  for (int part = 0; early_ && part < parts(); ++part)
    if (help_part(part)) return true;
  return false;
}

bool JobTicket::part_complete(int part) const {
  return complete() ||
         (job_ != nullptr && communicator_->group().part_done(*job_, part, communicator_->rank()));
}

bool JobTicket::help_part(int part) {
  return job_ != nullptr && communicator_->group().help_part(*job_, part, communicator_->rank());
}

bool JobTicket::part_ready(int part) {
  if (awaited_.kind != CollectiveKind::AllGather) return LocalTicket::part_ready(part);
  check_part(part);
  if (communicator_->group().poisoned() || part_complete(part)) return true;
  help_part(part);
  return part_complete(part);
}

void JobTicket::wait_part(int part) {
  if (awaited_.kind != CollectiveKind::AllGather) return LocalTicket::wait_part(part);
  check_part(part);
  const std::int64_t begin_ns = event().id != 0 ? now_ns() : 0;
  block([&] { return part_complete(part); }, [&] { return help_part(part) || help(); }, true);
  if (complete()) settle(begin_ns);
}

std::string JobTicket::missing_text() const {
  const LocalGroup& group = communicator_->group();
  return cat("arrived: ", group.arrived_text(*job_), "; missing: ", group.missing_text(*job_));
}

MessageTicket::MessageTicket(std::shared_ptr<LocalCommunicator> communicator,
                             const Collective& collective, std::shared_ptr<Message> message)
    : LocalTicket(std::move(communicator), collective, message->number),
      message_(std::move(message)),
      peer_(collective.root) {}

bool MessageTicket::help() {
  if (!message_->help()) return false;
  communicator_->group().wake();
  return true;
}

int MessageTicket::lost() const {
  const bool gone = communicator_->group().state(peer_).left.load();
  return gone && message_->state.load() == MessageState::Half ? peer_ : -1;
}

std::string MessageTicket::missing_text() const {
  return cat("missing: ", communicator_->group().rank_text(peer_));
}

}  // namespace coshard
