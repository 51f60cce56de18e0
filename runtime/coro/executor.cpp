#include <coshard/runtime/coro/executor.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/coro/wait_limit.h>
#include "runtime/coro/asio_gate.h"
#include "runtime/coro/deadlock_detector.h"
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
    const Poll polled = entry->poll();
    found |= polled == Poll::Progressed;
    stands_still_ |= polled != Poll::Done;
    if (polled == Poll::Done) {
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
    if (entry->poll() != Poll::Done) continue;
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
  const Poll polled = waiting_.front()->poll();
  if (polled != Poll::Done) {
    stands_still_ = true;
    return (moved || polled == Poll::Progressed) && keep_looking();
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
  while (head.poll() == Poll::Pending) {
    if (has_mail_.load(std::memory_order_relaxed)) return true;
    if (!spin_wait.spin()) return false;
  }
  return true;
}

void Executor::sleep(Waiting* head, bool asio_works, std::int64_t wake_ns) {
  Parker& parker = context_->parker();
  IdleScope nap(context_->waiter_state);
  const std::int64_t now = parker.now();
  if (!timers_.empty()) wake_ns = earlier(wake_ns, timers_.begin()->first);
  bool only_by_ranks = !asio_works && wake_ns == 0;  // can only ranks wake it
  struct Subscriptions : std::vector<Waiting*> {
    explicit Subscriptions(Parker& parker) : parker(parker) {}
    ~Subscriptions() {
      for (Waiting* entry : *this) entry->unsubscribe(parker);
    }
    Parker& parker;
  };
  Subscriptions subscribed(parker);
  const auto attend = [&](Waiting& entry) {
    context_->set_branch(*entry.branch_);
    if (!entry.subscribe(parker)) {
      wake_ns = earlier(wake_ns, now + kPollNs);
      only_by_ranks = false;
    }
    subscribed.push_back(&entry);
    only_by_ranks = only_by_ranks && !entry.ends_in_time();
    wake_ns = earlier(wake_ns, check(entry, now));
  };
  for (Waiting* e = head; e != nullptr;
       e = has(Fault::WaitingByCompletion) ? waiting_.after(*e) : nullptr)
    attend(*e);
  for (Waiting* e = unordered_.front(); e != nullptr; e = unordered_.after(*e)) attend(*e);
  const bool stuck =
      std::ranges::all_of(subscribed, [](Waiting* e) { return e->poll() == Poll::Pending; });
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
  waker().unpark();
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

namespace {

constexpr std::int64_t kGiveUpNs = 500'000'000;  // for what cannot be cancelled
constexpr std::int64_t kForEver = std::numeric_limits<std::int64_t>::max();

}  // namespace

// Whether the root was interrupted and is no longer waited for: when nothing is left to resume it,
// or after kGiveUpNs despite timers, which then guard waits that cannot be cancelled.
bool Executor::is_given_up(bool asio_works) const {
  if (give_up_at_ns_ == 0 || waits_for_others()) return false;
  return now() >= give_up_at_ns_ || (timers_.empty() && !asio_works && foreign_.empty());
}

// The error of a task that nothing will complete: if siblings were cancelled but cannot end, the
// error they were cancelled for.
std::exception_ptr Executor::waits_for_nobody() const {
  if (!failing_.empty()) return failing_.front().error;
  return std::make_exception_ptr(
      Error(ErrorKind::BadInput,
            "executor: deadlock: the task waits for something that nothing will complete"));
}

void Executor::hold_foreign(ForeignWait& wait) {
  const std::int64_t limit = WaitLimit::here().value_or(timeout_ns_);
  if (foreign_.empty()) foreign_limit_ns_ = 0;
  foreign_limit_ns_ = std::max(foreign_limit_ns_, limit > 0 ? limit : kForEver);
  wait.index_ = foreign_.size();
  foreign_.push_back(&wait);
  foreign_since_ns_ = 0;
}

void Executor::release_foreign(ForeignWait& wait) noexcept {
  ForeignWait* const last = foreign_.back();
  foreign_[wait.index_] = last;
  last->index_ = wait.index_;
  foreign_.pop_back();
  foreign_since_ns_ = 0;
}

// When it ends a program that only foreign awaitables could wake; 0: never.
std::int64_t Executor::only_foreign_until(bool asio_works) {
  const bool only = !foreign_.empty() && timers_.empty() && !asio_works && !waits_for_others();
  if (!only) foreign_since_ns_ = 0;
  if (!only) return 0;
  if (foreign_since_ns_ == 0) foreign_since_ns_ = now();
  const std::int64_t most = std::numeric_limits<std::int64_t>::max() - foreign_since_ns_;
  return foreign_limit_ns_ > most ? 0 : foreign_since_ns_ + foreign_limit_ns_;
}

std::exception_ptr Executor::not_resumed() const {
  std::string text =
      str_cat("co_await of ", foreign_.front()->describe(), whose_, ": not resumed after ",
              to_string(std::chrono::nanoseconds(foreign_limit_ns_)),
              ", and nothing else can wake the rank; ");
  if (!failing_.empty())
    text += str_cat("it was cancelled because a sibling failed: ", text_of(failing_.front().error),
                    "; let its await_suspend take a std::stop_token and resume its handle then");
  else
    text +=
        "resume its handle, bound it by with_deadline, or, if it rightly takes that long, hold a "
        "cs::WaitLimit around the await";
  return std::make_exception_ptr(Error(ErrorKind::Timeout, text));
}

bool Executor::is_here() const {
  if (host_ != nullptr) return host_->is_here();
  if (thread_ != nullptr) return thread_->runs_here();
  if (&RankContext::current() == context_) return true;
  const auto* strand = asio_->executor.target<boost::asio::strand<boost::asio::any_io_executor>>();
  return strand != nullptr && strand->running_in_this_thread();
}

bool Executor::virtual_time() const noexcept {
  return thread_ != nullptr && thread_->virtual_time();
}

void Executor::add_beside(std::weak_ptr<void> owner, std::function<void()> destroy) {
  std::erase_if(beside_, [](const Beside& spawned) { return spawned.owner.expired(); });
  beside_.push_back({std::move(owner), std::move(destroy)});
}

void Executor::destroy_beside() {
  while (!beside_.empty()) {
    const Beside last = std::move(beside_.back());
    beside_.pop_back();
    if (const std::shared_ptr<void> alive = last.owner.lock()) last.destroy();
  }
}

void Executor::failing(const void* place, const std::exception_ptr& error, std::string siblings) {
  const std::int64_t foreign_ns = foreign_.empty() ? 0 : foreign_limit_ns_;
  failing_.push_back({place, error, std::move(siblings), foreign_ns});
  if (on_failing_) on_failing_(&failing_.back());
}

void Executor::settled(const void* place) noexcept {
  const auto gone = std::erase_if(failing_, [place](const Failing& f) { return f.place == place; });
  if (gone > 0 && failing_.empty() && on_failing_) on_failing_(nullptr);
}

void Executor::interrupt(std::exception_ptr cause) {
  run_soon([this, cause = std::move(cause)] {
    if (interruption_) return;
    interruption_ = cause;
    give_up_at_ns_ = now() + kGiveUpNs;
    main_branch().cancel(cause);
  });
}

namespace {

// Branch positions of tasks spawned beside a program, disjoint from those of when_all children.
constexpr int kFirstBeside = 1 << 20;
const RankLocal<int> spawned_beside;

}  // namespace

Executor::Executor(const boost::asio::any_io_executor& target, Executor* beside)
    : ring_(kFirstCapacity), needs_pump_(true) {
  pump_parker_ = std::make_unique<PumpParker>(*this);
  if (beside != nullptr) {  // handlers of the rank never run at the same time
    asio_ = std::make_unique<Asio>(beside->asio_->executor);
    context_ = beside->context_;
    host_ = beside;
    const int number = (*spawned_beside)++;
    own_branch_ = std::make_unique<Branch>(context_->root(), kFirstBeside + number,
                                           str_cat("spawned.", number));
    return;
  }
  // Tasks of one executor never run at the same time, whatever the target's threads.
  asio_ = std::make_unique<Asio>(boost::asio::any_io_executor(boost::asio::make_strand(target)));
  own_context_ = std::make_unique<RankContext>(pump_parker_.get());
  context_ = own_context_.get();
}

Executor* Executor::current_on(const boost::asio::any_io_executor& target) noexcept {
  Executor* here = current();
  if (here == nullptr || !target) return nullptr;
  const Executor& host = here->host_ != nullptr ? *here->host_ : *here;
  return here->asio_->executor == target || host.asio_->gated == target ? here : nullptr;
}

Branch& Executor::main_branch() const { return own_branch_ ? *own_branch_ : context_->root(); }

Parker& Executor::waker() const {
  if (pump_parker_) return *pump_parker_;
  return context_->parker();
}

void Executor::launch(std::coroutine_handle<> root, const std::shared_ptr<void>& owner,
                      std::function<void(std::exception_ptr)> finished) {
  if (asio_->owner.expired()) belongs_to(owner);
  asio_->root = root;
  asio_->finished = std::move(finished);
  enqueue(root, main_branch());
}

void Executor::belongs_to(const std::shared_ptr<void>& owner) { asio_->owner = owner; }

std::shared_ptr<void> Executor::keep_alive() const { return asio_->owner.lock(); }

void Executor::run_here(const std::function<void()>& work) {
  const Running running(*this);
  work();
}

// Acquire and release: the pump that clears the flag sees the writes of every thread that found it
// set.
void Executor::post_pump() {
  if (asio_->pump_posted.exchange(true, std::memory_order_acq_rel)) return;
  const std::shared_ptr<AsioGate> gate = asio_->gate;  // outlives this executor
  const AsioGate::Pass pass(*gate);
  auto keep = pass ? keep_alive() : nullptr;
  if (keep == nullptr) {  // not launched yet, or being destroyed
    asio_->pump_posted.store(false, std::memory_order_release);
    return;
  }
  // Only the handler keeps the owner: the waking thread must not be the one that destroys it.
  boost::asio::post(asio_->executor, [this, keep = std::move(keep)] { pump(keep); });
}

void Executor::pump(const std::shared_ptr<void>& keep) {
  asio_->pump_posted.exchange(false, std::memory_order_acq_rel);
  if (!asio_->finished) return;  // woken after the end
  bool more = true;
  {
    struct Pumping {
      bool& needs_pump;
      explicit Pumping(bool& flag) : needs_pump(flag) { needs_pump = false; }
      ~Pumping() { needs_pump = true; }
    } const pumping(needs_pump_);
    const Running running(*this);
    unsubscribe_all();
    budget_ = kBudget;
    fire_timers();
    while (more && budget_ > 0 && !asio_->root.done()) more = turn();
    if (!more && !asio_->root.done()) more = idle_on_context(keep);
  }
  if (asio_->root.done()) return finish(nullptr);
  if (more) return post_pump();
  if (const std::exception_ptr error = hopeless(keep)) finish(error);
}

void Executor::discard() {
  abandon();
  asio_->alarm.reset();
  asio_->finished = nullptr;
  if (own_branch_) own_branch_->forget();
}

void Executor::finish(const std::exception_ptr& error) {
  const auto finished = std::exchange(asio_->finished, nullptr);
  unsubscribe_all();
  discard();
  finished(error);
}

void Executor::unsubscribe_all() noexcept {
  for (Waiting* entry : std::exchange(subscribed_, {})) entry->unsubscribe(waker());
}

// Nothing can run now: subscribes to the events waited for, and sets an alarm for the earliest
// deadline. True: something has moved since.
bool Executor::idle_on_context(const std::shared_ptr<void>& keep) {
  const std::int64_t now = this->now();
  std::int64_t wake_ns = give_up_at_ns_;
  if (!timers_.empty()) wake_ns = earlier(wake_ns, timers_.begin()->first);
  const auto attend = [&](Waiting& entry) {
    context_->set_branch(*entry.branch_);
    if (!entry.subscribe(waker())) wake_ns = earlier(wake_ns, now + kPollNs);
    subscribed_.push_back(&entry);
    wake_ns = earlier(wake_ns, check(entry, now));
  };
  if (Waiting* head = waiting_.front()) attend(*head);
  for (Waiting* e = unordered_.front(); e != nullptr; e = unordered_.after(*e)) attend(*e);
  const auto moves = [](Waiting* entry) { return entry->poll() != Poll::Pending; };
  if (std::ranges::any_of(subscribed_, moves)) {
    unsubscribe_all();
    return true;
  }
  const std::int64_t until = only_foreign_until(others_hold(keep));
  if (until != 0) wake_ns = earlier(wake_ns, std::max(until, now + 1));
  if (wake_ns != 0 || waits_for_others() || !foreign_.empty()) set_alarm(wake_ns);
  return false;
}

void Executor::set_alarm(std::int64_t wake_ns) {
  using Clock = std::chrono::steady_clock;
  if (asio_->alarm_ns == wake_ns) return;
  asio_->alarm_ns = wake_ns;
  if (!asio_->alarm) asio_->alarm.emplace(asio_->executor);
  asio_->alarm->expires_at(wake_ns == 0 ? Clock::time_point::max()
                                        : Clock::time_point(std::chrono::nanoseconds(wake_ns)));
  ++asio_->alarms_out;
  asio_->alarm->async_wait([this, keep = keep_alive()](const boost::system::error_code& error) {
    --asio_->alarms_out;
    if (error) return;
    asio_->alarm_ns = -1;
    pump(keep);
  });
}

// Anything that will resume one of its tasks holds the owner, as do `keep` and the alarms.
bool Executor::others_hold(const std::shared_ptr<void>& keep) const {
  return keep.use_count() > 1 + asio_->alarms_out;
}

// The error to end with when nothing is left that could resume a task; null: something is.
std::exception_ptr Executor::hopeless(const std::shared_ptr<void>& keep) const {
  if (is_given_up(true)) return interruption_;
  if (foreign_since_ns_ != 0 && foreign_limit_ns_ <= now() - foreign_since_ns_)
    return not_resumed();
  if (waits_for_others() || !timers_.empty()) return nullptr;
  if (!foreign_.empty() || others_hold(keep)) return nullptr;
  return interruption_ ? interruption_ : waits_for_nobody();
}

}  // namespace coshard
