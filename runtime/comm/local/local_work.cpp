#include "runtime/comm/local/local_work.h"

#include <algorithm>
#include <cstdio>

#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/coro/rank_context.h>
#include <coshard/runtime/error.h>
#include "runtime/comm/collective.h"
#include "runtime/comm/local/host/chunks.h"
#include "runtime/comm/neighbours.h"
#include "runtime/coro/deadlock_detector.h"
#include "runtime/coro/spin_wait.h"
#include "runtime/device/stream_times.h"
#include "runtime/printable.h"

namespace coshard {
namespace {

constexpr std::int64_t kLookAgainNs = 50'000;
constexpr int kHelpsPerCheck = 16;

}  // namespace

LocalWork::LocalWork(std::shared_ptr<LocalCommunicator> communicator, const Collective& collective,
                     std::uint64_t number)
    : communicator_(std::move(communicator)),
      awaited_(collective, number, communicator_->world_rank()),
      after_(collective.after) {}

// Keeps a dropped handle's buffers until peers and streams are done with them.
LocalWork::~LocalWork() {
  if (device_op_ == nullptr || settled_) return;
  LocalGroup& group = communicator_->group();
  const std::scoped_lock lock(group.devices().queueing());
  device_op_->keep(side_, std::move(kept_), group.poisoned());
}

template <class Done, class Help>
void LocalWork::block(int part, const Done& done, const Help& help) {
  LocalGroup& group = communicator_->group();
  RankContext& rank = RankContext::current();
  Parker& parker = rank.parker();
  SpinWait spin_wait;
  std::int64_t begin_ns = 0;
  int helps = 0;
  for (;;) {
    if (group.poisoned()) fail_poisoned();
    if (done()) return;
    const bool moved = help();
    if (moved && (done() || ++helps % kHelpsPerCheck != 0)) continue;
    fail_if_missing_is_here();
    if (begin_ns == 0) begin_ns = parker.now();
    if (moved) {  // perhaps what others wait for, without end
      check(parker.now() - begin_ns);
      if (parker.shares_its_thread()) parker.park(1);  // lets others run
      continue;
    }
    if (!parker.shares_its_thread() && spin_wait.spin()) continue;
    IdleScope nap(waiter_state());
    const Subscription subscription(*this, rank);
    // The clock is read before the checks: whatever becomes due after it makes the park return at
    // once.
    const std::int64_t looked_ns = parker.now(), later = not_before(part);
    if (!done()) check(looked_ns - begin_ns);
    if (group.poisoned() || done() || help()) continue;
    const std::int64_t timeout_ns = this->timeout_ns();
    std::int64_t wake_ns = timeout_ns > looked_ns - begin_ns ? begin_ns + timeout_ns : 0;
    if (later > looked_ns) wake_ns = wake_ns == 0 ? later : std::min(wake_ns, later);
    // A busy emulated link also ends the wait, so then the rank does not count as asleep.
    if (later <= looked_ns && !nap.begin()) continue;
    parker.park(wake_ns);
    nap.end([this] { return str_cat("waits in place for ", describe()); });
  }
}

std::int64_t LocalWork::not_before(int part) const {
  // Data from another process wake nobody, so poll again soon; but in a simulation they do.
  const LocalGroup& group = communicator_->group();
  if (group.remote() != nullptr && group.registry()->clock == nullptr)
    return RankContext::current().parker().now() + kLookAgainNs;
  return link() == nullptr ? 0 : link_ns(part);
}

// Null if a thread outside the deadlock detector may end the wait.
WaiterState* LocalWork::waiter_state() const {
  WaiterState* waiter_state = RankContext::current().waiter_state;
  const bool counts =
      waiter_state != nullptr &&
      communicator_->group().registry()->deadlock_detector == &waiter_state->deadlock_detector();
  return counts ? waiter_state : nullptr;
}

bool LocalWork::subscribe(Parker& parker) {
  communicator_->group().subscribe(parker, by_parts());
  return waiter_state() == RankContext::current().waiter_state;
}
void LocalWork::unsubscribe(Parker& parker) noexcept {
  communicator_->group().unsubscribe(parker, by_parts());
}

Poll LocalWork::poll(Poller by, int part) {
  if (part != kAll && by == Poller::Query) check_part(part);
  if (by == Poller::Query) return is_there(part) ? Poll::Done : Poll::Pending;
  if (by == Poller::AnyThread) {
    if (communicator_->group().poisoned() || complete()) return Poll::Done;
    return help() ? Poll::Progressed : Poll::Pending;
  }
  if (settled_ || communicator_->group().poisoned()) return Poll::Done;
  if (part == kAll ? complete() : part < 0 || part >= parts() || part_complete(part))
    return Poll::Done;
  if (by == Poller::Look) return Poll::Pending;
  return help() || communicator_->help_any() ? Poll::Progressed : Poll::Pending;
}

std::string LocalWork::failure() const {
  // Even if it is over: ops given up after the poison also end, without data.
  const LocalGroup& group = communicator_->group();
  return group.poisoned() ? group.cause() : "";
}

void LocalWork::begin_wait() {
  if (event_.id == 0 || begin_wait_ns_ != 0 || settled_) return;
  begin_wait_ns_ = rank_now_ns();
  if (Observer* watching = communicator_->observer()) watching->awaiting(event_);
}

void LocalWork::end_wait() {
  const std::int64_t begin_ns = std::exchange(begin_wait_ns_, 0);
  if (begin_ns == 0 || settled_ || event_.queued) return;
  if (Observer* watching = communicator_->observer())
    watching->stalled(event_, begin_ns, rank_now_ns());
}

void LocalWork::note(WorkEvent event) {
  switch (event) {
    case WorkEvent::Needed: return;
    case WorkEvent::StandsStill: return begin_wait();
    case WorkEvent::Runs: return end_wait();
    case WorkEvent::Abandoned: return note_abandoned();
    case WorkEvent::HasDependent: return mark_has_dependents();
    case WorkEvent::DependentAwaited: return dependent_awaited();
  }
}

void LocalWork::note_abandoned() {
  // Not for messages, which only two ranks wait for: the others gave up nothing. Noted whatever has
  // arrived by then, so that it depends on the program, not on timing.
  if (!is_point_to_point(awaited_.kind)) communicator_->note_given_up(awaited_);
}

void LocalWork::cancel(const std::string& cause) {
  if (!settled_ && !complete()) communicator_->group().poison(cause);
}

bool LocalWork::is_there(int) {
  if (settled_ || communicator_->group().poisoned()) return true;
  if (!complete()) help();
  return complete() && (device_op_ == nullptr || device_op_->over());
}

void LocalWork::wait(int part) {
  if (part != kAll) check_part(part);
  try {
    part == kAll ? wait_for_all() : wait_part(part);
  } catch (...) {
    end_wait();
    throw;
  }
}

void LocalWork::wait_for_all() {
  if (settled_) return;
  begin_wait();
  block(
      -1, [this] { return complete(); }, [this] { return help() || communicator_->help_any(); });
  settle();
}

void LocalWork::settle() {
  if (settled_) return;
  if (device_op_ != nullptr) order_after(device_op_->end());
  settled_ = true;
  kept_ = Kept();  // released in compute stream order
  if (after_) std::exchange(after_, nullptr)->note(WorkEvent::DependentAwaited);
  communicator_->retire();
  if (event_.id == 0) return;
  if (Observer* watching = communicator_->observer()) {
    const std::int64_t now = rank_now_ns();
    if (device_op_ != nullptr) {  // it is told when it has run
      const DeviceSide& side = device_op_->sides[side_];
      watching->ready(event_, now, now, now);
      return communicator_->device()->times().ran(event_, side.begin, side.over);
    }
    // Unobserved ranks do not record the time; now is the upper bound.
    const std::int64_t over = over_ns() > 0 ? std::min(over_ns(), now) : now;
    watching->ready(event_, std::min(begin_wait_ns_, now), over, now);
  }
}

// A simulation decides by lot which poll moves data, and none while its ranks compute or sleep: an
// emulated link, not the poll, tells there how long they were in flight.
std::int64_t LocalWork::over_ns(std::int64_t moved_ns, const Passage& passage) const {
  if (link() == nullptr) return moved_ns;
  const bool simulated = communicator_->group().registry()->clock != nullptr;
  return simulated ? passage.end : std::max(moved_ns, passage.end);
}

// The rank has not stood still for it, but for what depended on it.
void LocalWork::dependent_awaited() {
  if (settled_ || communicator_->group().poisoned() || !complete()) return;
  if (begin_wait_ns_ == 0) begin_wait_ns_ = rank_now_ns();
  settle();
}

void LocalWork::check(std::int64_t waited_ns) {
  if (communicator_->group().poisoned()) fail_poisoned();
  if (settled_ || !may_miss(waited_ns)) return;
  check_before(waited_ns);
  fail_if_lost();
  if (is_overdue(waited_ns)) fail_timeout(waited_ns);
}

bool LocalWork::is_overdue(std::int64_t waited_ns) {
  const std::int64_t timeout_ns = this->timeout_ns();
  if (timeout_ns <= 0 || waited_ns < timeout_ns || rest_is_here()) return false;
  if (!data_move()) return true;
  if (!told_late_.exchange(true))
    std::fprintf(stderr, "warning: %s\n", printable(late_text(waited_ns)).c_str());
  return false;
}

// A slow link is no error: in time, data have come from each awaited rank, perhaps of an earlier
// message, or that rank may itself wait for a slow link. In real time, so not in a simulation.
bool LocalWork::data_move() const {
  const LocalGroup& group = communicator_->group();
  const RemoteRanks* remote = group.registry()->remote.get();
  if (remote == nullptr || group.registry()->clock != nullptr) return false;
  bool any = false;
  for (int r = 0; r < group.size(); ++r) {
    const int world_rank = group.members()[static_cast<std::size_t>(r)];
    bool moves = !remote->here(world_rank) && remote->data_move(world_rank, timeout_ns());
    if ((misses(r) || lacks_data_of(r)) && !moves) {
      moves = remote->lately_may_wait(world_rank);
      if (!moves) return false;
    }
    any |= moves;
  }
  return any;
}

void LocalWork::check_part(int part) const {
  CS_REQUIRE(part >= 0 && part < parts(), describe(), ": part ", part, " is out of range for ",
             parts(), " parts");
}

// Orders work queued by peers before anything this rank frees.
void LocalWork::abandon() {
  communicator_->abandon();
  try {
    if (device_op_ != nullptr && !settled_ && complete() && device_op_->is_queued())
      order_after(device_op_->end());
  } catch (const Error&) {  // the device has failed, too
  }
}

void LocalWork::fail_poisoned() {
  abandon();
  throw communicator_->group().poisoned(awaited_);
}

void LocalWork::fail_timeout(std::int64_t waited_ns) {
  LocalGroup& group = communicator_->group();
  const std::string message = awaited_.timeout_text(group.title(), waited_ns, missing_text());
  Error late(ErrorKind::Timeout, message);
  late.note_missing(missing_ranks());
  if (!group.poison(message)) fail_poisoned();
  abandon();
  throw late;
}

void LocalWork::fail_if_lost() {
  const int rank = lost();
  if (rank < 0) return;
  LocalGroup& group = communicator_->group();
  group.poison(group.lost_text(awaited_, rank));
  fail_poisoned();
}

std::vector<int> LocalWork::missing_ranks() const {
  const std::vector<int>& members = communicator_->group().members();
  std::vector<int> missing;
  for (std::size_t r = 0; r < members.size(); ++r)
    if (misses(static_cast<int>(r))) missing.push_back(members[r]);
  std::ranges::sort(missing);
  return missing;
}

// On a caller's io_context, a peer on the same one cannot run during this blocking wait.
void LocalWork::fail_if_missing_is_here() const {
  const Neighbours* neighbours = RankContext::current().neighbours;
  if (neighbours == nullptr) return;
  const std::vector<int>& members = communicator_->group().members();
  for (std::size_t r = 0; r < members.size(); ++r)
    if (misses(static_cast<int>(r)) &&
        neighbours->together(communicator_->world_rank(), members[r]))
      throw MissingIsHere(describe(), members[r]);
}

OpWork::OpWork(std::shared_ptr<LocalCommunicator> communicator, const Collective& collective,
               std::uint64_t number, CollectiveOp* op)
    : LocalWork(std::move(communicator), collective, number), op_(op) {
  const int ranks = communicator_->size();
  early_ = awaited_.kind == CollectiveKind::AllGather && communicator_->device() == nullptr &&
           !is_one_shot(collective, ranks, communicator_->rank());
  chained_ = after_ != nullptr;
  if (op_ != nullptr) used_.emplace(*op_);
}

int OpWork::parts() const {
  return awaited_.kind == CollectiveKind::AllGather ? communicator_->size() : 1;
}

bool OpWork::help() {
  if (op_ == nullptr) return false;
  if (communicator_->group().help(*op_)) return true;
  if (communicator_->group().drive()) return true;
  for (int part = 0; early_ && part < parts(); ++part)
    if (help_part(part)) return true;
  return false;
}

bool OpWork::part_complete(int part) const {
  return complete() || (op_ != nullptr && device_op_ == nullptr &&
                        communicator_->group().part_done(*op_, part, communicator_->rank()) &&
                        (link() == nullptr || !part_on_link(part)));
}

// A rank's own part does not use the link.
bool OpWork::part_on_link(int part) const {
  if (part == communicator_->rank()) return false;
  return !op_->armed.load() ||
         LinkQueue::now() < link()->part_ns(*op_, part, communicator_->rank());
}

std::int64_t OpWork::link_ns(int part) const {
  if (op_ == nullptr) return 0;
  if (part < 0 || parts() == 1 || !op_->armed.load())
    return communicator_->group().not_before(*op_);
  return link()->part_ns(*op_, part, communicator_->rank());
}

std::int64_t OpWork::over_ns() const {
  return LocalWork::over_ns(op_->over_ns.load(std::memory_order_relaxed), op_->passage);
}

bool OpWork::help_part(int part) {
  return op_ != nullptr && device_op_ == nullptr &&
         communicator_->group().help_part(*op_, part, communicator_->rank());
}

bool OpWork::is_there(int part) {
  if (part < 0 || awaited_.kind != CollectiveKind::AllGather) return LocalWork::is_there(part);
  if (communicator_->group().poisoned()) return true;
  if (device_op_ != nullptr)
    return complete() && device_op_->end_of_part(part, communicator_->rank())->query();
  if (!part_complete(part)) help_part(part);
  return part_complete(part);
}

void OpWork::wait_part(int part) {
  if (awaited_.kind != CollectiveKind::AllGather) return wait_for_all();
  if (device_op_ == nullptr) begin_wait();
  struct Waits {
    bool& it;
    ~Waits() { it = false; }
  } const waits{waits_for_part_};
  waits_for_part_ = true;
  block(
      part, [&] { return part_complete(part); }, [&] { return help_part(part) || help(); });
  if (device_op_ != nullptr && !settled())
    return order_after(device_op_->end_of_part(part, communicator_->rank()), part);
  complete() ? settle() : end_wait();
}

// Its dependency may never complete.
void OpWork::check_before(std::int64_t waited_ns) {
  if (after_ && !entry(*op_, communicator_->rank()).arrived()) after_->check(waited_ns);
}

std::string OpWork::missing_text() const {
  const LocalGroup& group = communicator_->group();
  if (link() != nullptr && op_->armed.load())
    return str_cat("its emulated link is busy for another ",
                   to_string(std::chrono::nanoseconds(
                       std::max<std::int64_t>(0, op_->passage.end - LinkQueue::now()))));
  return str_cat("arrived: ", group.arrived_text(*op_), "; missing: ", group.missing_text(*op_));
}

// Also hears what the others say, though nothing may be in flight here.
bool AnnouncedWork::may_miss(std::int64_t waited_ns) {
  all().look();
  const std::int64_t limit = timeout_ns();
  if (asked_ns_ == 0 && limit > 0 && waited_ns >= limit - Announcements::ask_before_ns(limit))
    asked_ns_ = all().ask(rank(), awaited_.number);
  return !complete() || (limit > 0 && waited_ns >= limit);
}

void AnnouncedWork::wait_for_room() {
  for_room_ = true;
  block(
      -1, [this] { return !all().awaited(rank()); }, [this] { return help(); });
}

MessageWork::MessageWork(std::shared_ptr<LocalCommunicator> communicator,
                         const Collective& collective, std::shared_ptr<Message> message)
    : LocalWork(std::move(communicator), collective, message->number),
      message_(std::move(message)),
      peer_(collective.root) {}

bool MessageWork::help() {
  return communicator_->help(*message_) || communicator_->group().drive();
}

std::int64_t MessageWork::link_ns(int) const {
  return message_->state.load() == MessageState::Half ? 0 : message_->passage.end;
}

std::int64_t MessageWork::over_ns() const {
  return LocalWork::over_ns(message_->over_ns.load(std::memory_order_relaxed), message_->passage);
}

int MessageWork::lost() const {
  const bool gone = communicator_->group().state(peer_).left.load();
  return gone && message_->state.load() == MessageState::Half ? peer_ : -1;
}

std::string MessageWork::missing_text() const {
  return str_cat("missing: ", communicator_->group().rank_text(peer_));
}

void LocalWork::bring(std::shared_ptr<DeviceOp> op, std::size_t place, DeviceSide side,
                      const Collective& args) {
  kept_ = std::move(side.kept);
  side.args = &args;
  op->sides[place] = std::move(side);
  side_ = place;
  device_op_ = std::move(op);
}

void LocalWork::order_after(const std::shared_ptr<Event>& end, int part) {
  Device& device = *communicator_->device();
  Stream& compute = device.compute_stream();
  const DeviceSide& side = device_op_->sides[side_];
  const std::shared_ptr<Event> reached = side.timed ? compute.record_timed() : nullptr;
  const std::shared_ptr<Event>& own = part < 0 && side.over != nullptr ? side.over : end;
  compute.wait(*end);
  if (own != end) compute.wait(*own);  // so that its time is known when later work is complete
  if (!looked_after_) device.watch(device_op_);
  looked_after_ = true;
  if (reached != nullptr) device.times().stalled(event_, reached, own);
}

}  // namespace coshard
