#include "runtime/comm/local/device_work.h"

#include <algorithm>

#include "runtime/error.h"

namespace coshard {
namespace {

std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

// Whose compute stream has not come to the collective that all have issued; `ranks`: of the world.
std::string unready_text(const DeviceJob& job, const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < job.sides.size(); ++i) {
    bool ready = false;
    try {
      ready = job.sides[i].ready->query();
    } catch (const Error&) {  // a device that failed does not get there
    }
    if (!ready)
      text +=
          cat(text.empty() ? "" : ", ", ranks[i], " (", job.sides[i].lane->device().name(), ")");
  }
  return cat("issued by all; ",
             text.empty() ? "the transfer has not ended" : "not there on its device: ", text);
}

}  // namespace

DeviceWatch::DeviceWatch(const LocalCommunicator& communicator, const Collective& collective,
                         std::uint64_t number, Marks marks, Job* job,
                         const std::shared_ptr<Message>& message)
    : group_(communicator.shared_group()),
      awaited_(collective, number, communicator.world_rank()),
      marks_(std::move(marks)),
      job_(job),
      message_(message),
      peer_(collective.root),
      timeout_ns_(communicator.timeout_ns()) {
  if (job_ != nullptr) job_->references.fetch_add(1, std::memory_order_relaxed);
}

DeviceWatch::~DeviceWatch() {
  if (job_ == nullptr) return;
  if (const auto group = group_.lock()) LocalGroup::release(*job_);
}

// In this order: what was reached before the poison was not let go by it.
bool DeviceWatch::over() {
  if (!marks_.flag->reached(marks_.last)) return false;
  const auto group = group_.lock();
  return group == nullptr || !group->poisoned();
}

void DeviceWatch::check(std::int64_t waited_ns) {
  const auto group = group_.lock();
  if (group == nullptr) {
    if (marks_.flag->released() && !marks_.flag->reached(marks_.last))
      throw PeerFailure(cat(to_string(awaited_.kind), " #", awaited_.number, " on rank ",
                            awaited_.world_rank,
                            " failed: its communicator ended before all ranks came to it"));
    return;
  }
  if (group->poisoned()) throw group->poisoned(awaited_);
  if (const int rank = lost(*group); rank >= 0) {
    group->poison(group->lost_text(awaited_, rank));
    throw group->poisoned(awaited_);
  }
  if (timeout_ns_ == 0 || waited_ns < timeout_ns_) return;
  const std::string message =
      awaited_.timeout_text(group->title(), waited_ns, missing_text(*group));
  if (!group->poison(message)) throw group->poisoned(awaited_);
  throw Error(ErrorKind::Timeout, message);
}

int DeviceWatch::lost(LocalGroup& group) const {
  if (job_ != nullptr) return group.lost(*job_);
  const auto message = message_.lock();
  if (message == nullptr || !group.state(peer_).left.load()) return -1;
  return message->state.load() == MessageState::Half ? peer_ : -1;
}

std::string DeviceWatch::missing_text(const LocalGroup& group) const {
  const auto message = message_.lock();
  const DeviceJob* job = job_ != nullptr      ? job_->device.get()
                         : message != nullptr ? message->device.get()
                                              : nullptr;
  if (job != nullptr && job->queued.load(std::memory_order_acquire))
    return unready_text(*job, message != nullptr
                                  ? std::vector<int>{group.members()[index(message->source)],
                                                     group.members()[index(message->target)]}
                                  : group.members());
  if (job_ == nullptr) return cat("missing: ", group.rank_text(peer_));
  return cat("arrived: ", group.arrived_text(*job_), "; missing: ", group.missing_text(*job_));
}

DeviceWork::DeviceWork(std::shared_ptr<LocalCommunicator> communicator, std::shared_ptr<Lane> lane,
                       std::shared_ptr<DeviceWatch> watch, std::shared_ptr<Message> message,
                       DeviceJob* work, std::size_t side, Kept kept)
    : communicator_(std::move(communicator)),
      lane_(std::move(lane)),
      watch_(std::move(watch)),
      message_(std::move(message)),
      work_(work),
      side_(side),
      kept_(std::move(kept)) {}

DeviceWork::~DeviceWork() {
  if (waited_ || work_ == nullptr) return;
  const std::scoped_lock lock(communicator_->group().devices().queueing());
  if (work_->queued.load(std::memory_order_relaxed)) {
    for (auto& buffer : kept_)
      if (buffer != nullptr) buffer->used_until(work_->over);
  } else if (work_->started || !communicator_->group().poisoned()) {
    work_->sides[side_].kept = std::move(kept_);
  }
}

int DeviceWork::parts() const {
  return std::max(1, static_cast<int>(watch_->marks().last - watch_->marks().first) - 1);
}

// The query moves drivers to work that do so only when they are asked.
bool DeviceWork::passed(std::uint32_t mark) const {
  const Flag& flag = *watch_->marks().flag;
  if (flag.reached(mark) || communicator_->group().poisoned()) return true;
  if (work_ == nullptr || !work_->queued.load(std::memory_order_acquire)) return false;
  return work_->over->query() || flag.reached(mark);
}

void DeviceWork::check(std::int64_t waited_ns) {
  if (!watch_->over()) watch_->check(waited_ns);
}

void DeviceWork::given_up() {
  if (!waited_) communicator_->note_given_up(watch_->awaited());
}

bool DeviceWork::ready() { return passed(watch_->marks().last); }

void DeviceWork::order_after(std::uint32_t mark) {
  watch_->check(0);
  watch_->marks().flag->wait(lane_->device().compute_stream(), mark);
  if (!watched_) lane_->device().watch(watch_);
  watched_ = true;
  // A poison from here on lets the stream go; one before has let go already, and is said.
  watch_->check(0);
}

void DeviceWork::wait() {
  if (waited_) return;
  Observer* watching = event_.id != 0 ? communicator_->observer() : nullptr;
  if (watching != nullptr) watching->awaiting(event_);
  order_after(watch_->marks().last);
  waited_ = true;
  kept_ = Kept();  // given back in the order of the compute stream
  if (watching == nullptr) return;
  const std::int64_t now = now_ns();
  watching->ready(event_, now, now, now);
}

std::uint32_t DeviceWork::mark_of(int part) const {
  CS_REQUIRE(part >= 0 && part < parts(), watch_->awaited().text(communicator_->group().title()),
             ": part ", part, " is not one of ", parts());
  const Marks& marks = watch_->marks();
  if (marks.last == marks.first + 1) return marks.last;
  const int place = (part - communicator_->rank() + parts()) % parts();  // its own is first
  return marks.first + static_cast<std::uint32_t>(place) + 1;
}

bool DeviceWork::part_ready(int part) { return passed(mark_of(part)); }

void DeviceWork::wait_part(int part) {
  const std::uint32_t mark = mark_of(part);
  if (mark == watch_->marks().last) return wait();
  if (!waited_) order_after(mark);
}

}  // namespace coshard
