// An executor on the user's context. Handlers ("pumps") posted there, one at a time, drain its
// queues; it runs only inside them. Events it waits for ring it, from any thread, which posts the
// next pump. While a wait is to be ended from outside the context, a pending alarm, possibly set to
// never, holds the owner, so that task and context live and die together.
#include <boost/asio/post.hpp>
#include <chrono>

#include "runtime/coro/executor_asio.h"

namespace coshard {
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

Parker& Executor::bell() const {
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
  // Only the handler keeps the owner: the ringing thread must not be the one that destroys it.
  boost::asio::post(asio_->executor, [this, keep = std::move(keep)] { pump(keep); });
}

void Executor::pump(const std::shared_ptr<void>& keep) {
  asio_->pump_posted.exchange(false, std::memory_order_acq_rel);
  if (!asio_->finished) return;  // rung after the end
  bool more = true;
  {
    struct Pumping {
      bool& needs_pump;
      explicit Pumping(bool& flag) : needs_pump(flag) { needs_pump = false; }
      ~Pumping() { needs_pump = true; }
    } const pumping(needs_pump_);
    const Running running(*this);
    stop_listening();
    budget_ = kBudget;
    fire_timers();
    while (more && budget_ > 0 && !asio_->root.done()) more = turn();
    if (!more && !asio_->root.done()) more = rest(keep);
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
  stop_listening();
  discard();
  finished(error);
}

void Executor::stop_listening() noexcept {
  for (Waiting* entry : std::exchange(heard_, {})) entry->deaf(bell());
}

// Nothing can run now: subscribes to the events waited for, and sets an alarm for the earliest
// deadline. True: something has moved since.
bool Executor::rest(const std::shared_ptr<void>& keep) {
  const std::int64_t now = this->now();
  std::int64_t wake_ns = give_up_at_ns_;
  if (!timers_.empty()) wake_ns = earlier(wake_ns, timers_.begin()->first);
  const auto attend = [&](Waiting& entry) {
    context_->set_branch(*entry.branch_);
    if (!entry.listen(bell())) wake_ns = earlier(wake_ns, now + kPollNs);
    heard_.push_back(&entry);
    wake_ns = earlier(wake_ns, check(entry, now));
  };
  if (Waiting* head = waiting_.front()) attend(*head);
  for (Waiting* e = unordered_.front(); e != nullptr; e = unordered_.after(*e)) attend(*e);
  const auto moves = [](Waiting* entry) { return entry->look() != Look::Stuck; };
  if (std::ranges::any_of(heard_, moves)) {
    stop_listening();
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
