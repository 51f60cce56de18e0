#include <coshard/runtime/coro/executor.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>

#include "runtime/coro/asio_gate.h"
#include "runtime/coro/census.h"
#include "runtime/coro/executor_asio.h"
#include "runtime/coro/fault_switch.h"
#include "runtime/coro/fiber_thread.h"
#include "runtime/coro/spin_wait.h"

namespace coshard {

namespace {

constexpr int kHandlersPerPoll = 16;

}  // namespace

Executor::Executor()
    : ring_(kFirstCapacity),
      asio_(std::make_unique<Asio>(std::make_unique<boost::asio::io_context>(1))) {
  context_ = &RankContext::current();
}

Executor::Executor(FiberThread& thread)
    : ring_(kFirstCapacity),
      operations_(std::make_shared<std::atomic<int>>(0)),
      thread_(&thread),
      asio_(std::make_unique<Asio>(thread.io_context())) {
  context_ = &RankContext::current();
}

Executor::~Executor() {
  destroy_beside();
  abandon();
}

void Executor::require_asio() const {
  if (virtual_time()) [[unlikely]]
    fail(ErrorKind::Unsupported,
         "executor: a simulation has no Asio timers or sockets; use sleep_for");
}

boost::asio::io_context& Executor::io_context() {
  require_asio();
  if (asio_->context == nullptr)
    fail(ErrorKind::Unsupported,
         "Executor::io_context: this executor runs on the user's io_context");
  asio_->used.store(true, std::memory_order_relaxed);
  return *asio_->context;
}

const boost::asio::any_io_executor& Executor::asio_executor() const {
  require_asio();
  if (asio_->context != nullptr) asio_->used.store(true, std::memory_order_relaxed);
  return asio_->executor;
}

const boost::asio::any_io_executor& Executor::handler_executor() {
  if (host_ != nullptr) return host_->handler_executor();
  const boost::asio::any_io_executor& executor = asio_executor();
  if (asio_->context == nullptr) return executor;  // the user's, kept alive by the user
  if (!asio_->gated) asio_->gated = GatedExecutor(AsioGateService::gate_of(*asio_->context));
  return asio_->gated;
}

void Executor::grow() {
  std::vector<Entry> larger(ring_.size() * 2);
  for (std::size_t i = 0; i < size_; ++i) larger[i] = ring_[(head_ + i) & (ring_.size() - 1)];
  ring_ = std::move(larger);
  head_ = 0;
}

void Executor::wait(Waiting& entry, std::coroutine_handle<> self) {
  entry.coroutine_ = self;
  entry.branch_ = &context_->branch();
  entry.head_since_ns_ = 0;
  entry.branch_->suspended = &entry;
  waiting_.push_back(entry);
  if (needs_pump_) [[unlikely]]
    post_pump();
}

void Executor::wait_unordered(Waiting& entry, std::coroutine_handle<> self) {
  wait(entry, self);
  entry.unlink();
  unordered_.push_back(entry);
}

void Executor::give_up(Waiting& entry) {
  if (stands_still_) rank_runs();
  entry.unlink();
  entry.branch_->suspended = nullptr;
  enqueue(entry.coroutine_, *entry.branch_);
}

void Executor::release_held() {
  for (const Entry& held : std::exchange(held_, {})) enqueue(held.coroutine, *held.branch);
}

// What the rank waits for is told that it no longer stands still for it.
void Executor::rank_runs() {
  stands_still_ = false;
  Branch& running = context_->branch();
  const auto tell = [this](Waiting& entry) {
    context_->set_branch(*entry.branch_);
    entry.rank_runs();
  };
  if (Waiting* head = waiting_.front()) tell(*head);
  for (Waiting* e = unordered_.front(); e != nullptr; e = unordered_.after(*e)) tell(*e);
  context_->set_branch(running);
}

void Executor::resume_head() {
  Waiting& head = *waiting_.front();
  head.unlink();  // whatever it awaits tells of its own wait
  if (stands_still_) rank_runs();
  yields_ = 0;
  polled_for_head_ = false;
  if (!held_.empty()) [[unlikely]]
    release_held();
  --budget_;
  head.branch_->suspended = nullptr;
  context_->set_branch(*head.branch_);
  head.coroutine_.resume();
}

void Executor::release_cancelled() {
  std::erase_if(held_, [this](const Entry& held) {
    if (!held.branch->cancelled()) return false;
    enqueue(held.coroutine, *held.branch);
    return true;
  });
}

bool Executor::look_after_unordered() {
  bool found = false;
  for (Waiting* entry = unordered_.front(); entry != nullptr;) {
    Waiting* next = unordered_.after(*entry);
    context_->set_branch(*entry->branch_);
    const Look look = entry->look();
    found |= look == Look::Moved;
    stands_still_ |= look != Look::Over;
    if (look == Look::Over) {
      give_up(*entry);
      found = true;
    }
    entry = next;
  }
  return found;
}

// As in Waiting::check().
std::int64_t Executor::check(Waiting& entry, std::int64_t now) {
  if (entry.head_since_ns_ == 0) entry.head_since_ns_ = now;
  context_->set_branch(*entry.branch_);
  return entry.check(now - entry.head_since_ns_);
}

// Implements Fault::WaitingByCompletion, for tests.
void Executor::first_over_to_front() {
  for (Waiting* entry = waiting_.front(); entry != nullptr; entry = waiting_.after(*entry)) {
    if (entry->look() != Look::Over) continue;
    entry->unlink();
    waiting_.push_front(*entry);
    return;
  }
}

// Runs the next item; false if there is nothing to run now.
bool Executor::turn() {
  if (has_mail_.load(std::memory_order_acquire)) [[unlikely]]
    open_mail();
  if (size_ > 0) {
    if (budget_ <= 0) take_turns();
    if (stands_still_) [[unlikely]]
      rank_runs();
    resume_front();
    return true;
  }
  const bool moved = !unordered_.empty() && look_after_unordered();
  if (size_ > 0) return true;
  if (waiting_.empty()) {
    if (held_.empty()) return moved && keep_looking();
    release_held();
    return true;
  }
  if (has(Fault::WaitingByCompletion)) first_over_to_front();
  context_->set_branch(*waiting_.front()->branch_);
  const Look look = waiting_.front()->look();
  if (look != Look::Over) {
    stands_still_ = true;
    return (moved || look == Look::Moved) && keep_looking();
  }
  if (budget_ <= 0) {
    take_turns();
    if (size_ > 0) return true;
  }
  if (!polled_for_head_ && (asio_->used.load(std::memory_order_relaxed) || !timers_.empty())) {
    polled_for_head_ = true;
    poll();
    if (size_ > 0) return true;
  }
  resume_head();
  return true;
}

void Executor::drive(std::coroutine_handle<> root) {
  CS_REQUIRE(current() == nullptr,
             "Executor::run: an executor already runs on this thread; co_await the task instead");
  CS_REQUIRE(asio_->context != nullptr,
             "Executor::run: this executor runs on the user's io_context; use co_spawn");
  if (context_ != &RankContext::current()) context_ = &RankContext::current();  // others read it
  const Running running(*this);
  try {
    enqueue(root);
    while (!root.done())
      if (!turn()) idle();
  } catch (...) {  // a user's handler threw, or a deadlock: abandon the root
    abandon();
    throw;
  }
}

void Executor::abandon() noexcept {
  size_ = 0;
  held_.clear();
  waiting_.clear();
  unordered_.clear();
  failing_.clear();
  Timer::disarm_all(timers_);
}

void Executor::fire_timers() {
  if (timers_.empty()) return;
  const std::int64_t now = this->now();
  while (!timers_.empty() && timers_.begin()->first <= now) {
    Timer& timer = *timers_.begin()->second;
    timer.disarm();
    timer.due();
  }
}

// Fires due timers and runs some handlers; returns whether Asio has work left.
bool Executor::poll() {
  if (thread_ != nullptr) {  // the thread polls
    fire_timers();
    return operations_under_way();
  }
  if (!asio_->own) {  // the user's threads run the rest, between pumps
    fire_timers();
    return false;
  }
  budget_ = kBudget;
  fire_timers();
  if (!asio_->used.load(std::memory_order_relaxed)) return false;
  ++asio_polls_;
  context_->set_branch(context_->root());  // handlers belong to the program's root branch
  boost::asio::io_context& context = *asio_->own;
  if (context.stopped()) context.restart();
  for (int i = 0; i < kHandlersPerPoll && context.poll_one() > 0; ++i) {
  }
  return !context.stopped();
}

// Something has moved, perhaps what others wait for, without end: waits are checked now and then.
bool Executor::keep_looking() {
  if (budget_ <= 0) take_turns();
  if (--budget_ > 0) return true;
  const std::int64_t now = this->now();
  if (Waiting* head = waiting_.front()) check(*head, now);
  for (Waiting* e = unordered_.front(); e != nullptr; e = unordered_.after(*e)) check(*e, now);
  return true;
}

// After many resumptions, gives Asio, unordered waits and the thread's other ranks a turn.
void Executor::take_turns() {
  poll();
  if (!unordered_.empty()) look_after_unordered();
  budget_ = kBudget;
  if (thread_ != nullptr)
    context_->parker().park(1,
                            operations_under_way() || others_may_post() ? asio_->context : nullptr);
}

// Whether a peer or another thread will end a wait.
bool Executor::waits_for_others() const {
  const Waiting* head = waiting_.front();
  if (head != nullptr && head->ends_elsewhere()) return true;
  for (const Waiting* e = unordered_.front(); e != nullptr; e = unordered_.after(*e))
    if (e->ends_elsewhere()) return true;
  return false;
}

void Executor::idle() {
  const bool works = poll();
  if (size_ > 0) return;
  Waiting* head = waiting_.front();
  if (is_given_up(works)) std::rethrow_exception(interruption_);
  if (timers_.empty() && !waits_for_others() && !works && foreign_.empty())
    std::rethrow_exception(waits_for_nobody());
  const std::int64_t until = only_foreign_until(works);
  if (until != 0 && until <= now()) std::rethrow_exception(not_resumed());
  if (head == nullptr || !spin(*head))
    sleep(head, works || others_may_post(), earlier(give_up_at_ns_, until));
}

// Spins for as long as a sleep and a wake-up cost; returns whether there is something to do now.
bool Executor::spin(Waiting& head) {
  if (context_->parker().shares_its_thread()) return false;
  SpinWait spin_wait;
  while (head.look() == Look::Stuck) {
    if (has_mail_.load(std::memory_order_relaxed)) return true;
    if (!spin_wait.spin()) return false;
  }
  return true;
}

void Executor::sleep(Waiting* head, bool asio_works, std::int64_t wake_ns) {
  Parker& parker = context_->parker();
  Nap nap(context_->sleeper);
  const std::int64_t now = parker.now();
  if (!timers_.empty()) wake_ns = earlier(wake_ns, timers_.begin()->first);
  bool only_by_ranks = !asio_works && wake_ns == 0;  // can only ranks wake it
  struct Heard : std::vector<Waiting*> {
    explicit Heard(Parker& parker) : parker(parker) {}
    ~Heard() {
      for (Waiting* entry : *this) entry->deaf(parker);
    }
    Parker& parker;
  };
  Heard heard(parker);
  const auto attend = [&](Waiting& entry) {
    context_->set_branch(*entry.branch_);
    if (!entry.listen(parker)) {
      wake_ns = earlier(wake_ns, now + kPollNs);
      only_by_ranks = false;
    }
    heard.push_back(&entry);
    only_by_ranks = only_by_ranks && !entry.ends_in_time();
    wake_ns = earlier(wake_ns, check(entry, now));
  };
  for (Waiting* e = head; e != nullptr;
       e = has(Fault::WaitingByCompletion) ? waiting_.after(*e) : nullptr)
    attend(*e);
  for (Waiting* e = unordered_.front(); e != nullptr; e = unordered_.after(*e)) attend(*e);
  const bool stuck =
      std::ranges::all_of(heard, [](Waiting* e) { return e->look() == Look::Stuck; });
  if (stuck && !has_mail_.load(std::memory_order_acquire) && (!only_by_ranks || nap.begin())) {
    boost::asio::io_context* context = asio_works ? asio_->context : nullptr;
    if (context != nullptr) {
      asio_->used.store(true, std::memory_order_relaxed);
      // Foreign awaitables are resumed by a post to this context, which may have no other work.
      const auto open = boost::asio::make_work_guard(*context);
      context_->set_branch(context_->root());
      parker.park(wake_ns, context);
    } else {
      parker.park(wake_ns);
    }
  }
  nap.end([this] { return standing(); });
}

void Executor::run_soon(std::function<void()> work) {
  {
    const std::scoped_lock lock(mail_mutex_);
    mail_.push_back(std::move(work));
  }
  has_mail_.store(true, std::memory_order_release);
  bell().ring();
}

void Executor::open_mail() {
  has_mail_.store(false, std::memory_order_relaxed);
  std::vector<std::function<void()>> mail;
  {
    const std::scoped_lock lock(mail_mutex_);
    mail.swap(mail_);
  }
  for (const auto& work : mail) work();
}

std::string Executor::standing() const {
  if (context_->in_place != nullptr)
    return str_cat("waits in place for ", context_->in_place->text());
  if (const Waiting* head = waiting_.front()) return str_cat("waits for ", head->describe());
  if (const Waiting* entry = unordered_.front()) return str_cat("waits for ", entry->describe());
  if (size_ > 0) return "runs";
  if (!foreign_.empty()) return str_cat("waits for ", foreign_.front()->describe());
  return "waits for a timer or a socket";
}

}  // namespace coshard
