#include "runtime/comm/local/thread_group.h"

#include <algorithm>
#include <numeric>

#include "runtime/comm/local/group.h"
#include "runtime/comm/local/host/progress_threads.h"
#include "runtime/comm/local/local_communicator.h"

namespace coshard {
namespace {

std::vector<std::shared_ptr<LocalGroup>> groups_of(LocalRegistry& registry) {
  std::vector<std::shared_ptr<LocalGroup>> alive;
  const std::scoped_lock lock(registry.mutex);
  for (const auto& group : registry.groups)
    if (auto held = group.lock()) alive.push_back(std::move(held));
  return alive;
}

}  // namespace

void LocalRegistry::wake() {
  for (const auto& group : groups_of(*this)) group->wake();
  if (progress != nullptr) progress->wake_all();
}

void LocalRegistry::poison(const std::string& cause) {
  for (const auto& group : groups_of(*this)) group->mark_poisoned(cause);
}

std::shared_ptr<LocalGroup> make_group(const std::shared_ptr<LocalRegistry>& registry,
                                       std::vector<int> members, std::string name) {
  auto group = std::make_shared<LocalGroup>(registry, std::move(members), std::move(name));
  std::erase_if(registry->groups, [](const auto& old) { return old.expired(); });
  registry->groups.push_back(group);
  if (!registry->cause.empty()) group->mark_poisoned(registry->cause);
  for (int r = 0; r < group->size(); ++r)
    if (registry->left.contains(group->members()[static_cast<std::size_t>(r)])) group->leave(r);
  return group;
}

ThreadGroup::ThreadGroup(int ranks, std::string name, ThreadGroupOptions options)
    : registry_(std::make_shared<LocalRegistry>()) {
  CS_REQUIRE(ranks >= 1, "ranks must be at least 1, got ", ranks);
  if (options.link) check(*options.link);
  CS_REQUIRE(options.progress_threads >= 0, "progress_threads must be at least 0, got ",
             options.progress_threads);
  registry_->link = options.link;
  registry_->remote = options.remote;
  if (options.progress_threads > 0)
    registry_->progress =
        std::make_shared<ProgressThreads>(options.progress_threads, options.remote);
  std::vector<int> members(static_cast<std::size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  world_ = make_group(registry_, std::move(members), std::move(name));
  world_->set_key(options.key);
  if (world_->remote() != nullptr) world_->remote()->made(world_);
}

ThreadGroup::~ThreadGroup() {
  if (registry_->progress != nullptr) registry_->progress->stop();
  for (const auto& group : groups_of(*registry_)) group->forget_unprepared();
  decltype(registry_->pending) unmade;
  const std::scoped_lock lock(registry_->mutex);
  unmade.swap(registry_->pending);
}

std::shared_ptr<Communicator> ThreadGroup::communicator(int rank) {
  CS_REQUIRE(rank >= 0 && rank < world_->size(), "rank ", rank, " is out of range for ",
             world_->size(), " ranks");
  return std::make_shared<LocalCommunicator>(world_, rank);
}

void ThreadGroup::poison(const std::string& cause) {
  {
    const std::scoped_lock lock(registry_->mutex);
    if (registry_->cause.empty()) registry_->cause = cause;
  }
  registry_->poison(cause);
}

bool ThreadGroup::left(int rank) const {
  const std::scoped_lock lock(registry_->mutex);
  return registry_->left.contains(rank);
}

void ThreadGroup::count_in(DeadlockDetector& deadlock_detector) {
  registry_->deadlock_detector = &deadlock_detector;
  if (registry_->progress) registry_->progress->count_in(deadlock_detector);
}

std::string ThreadGroup::last_seen(int rank) const {
  LastIssued last;
  std::string on;
  for (const auto& group : groups_of(*registry_)) {
    const auto member = std::ranges::find(group->members(), rank);
    if (member == group->members().end()) continue;
    const LastIssued its = group->last_issued(static_cast<int>(member - group->members().begin()));
    if (its.count == 0 || (last.count > 0 && its.at_ns < last.at_ns)) continue;
    last = its;
    on = group->title();
  }
  return last.count == 0 ? "has issued no collective yet" : last.text(on);
}

void ThreadGroup::use(TransferClock& clock) {
  registry_->clock = &clock;
  if (registry_->remote != nullptr)
    registry_->progress = std::make_shared<ProgressThreads>(0, registry_->remote, &clock);
}

std::int64_t ThreadGroup::progress() {
  return registry_->progress != nullptr ? registry_->progress->poll() : 0;
}

void ThreadGroup::poll_remote() {
  if (registry_->progress != nullptr) registry_->progress->poll_remote();
}

void ThreadGroup::wake() { registry_->wake(); }

void ThreadGroup::leave(int rank) {
  {
    const std::scoped_lock lock(registry_->mutex);
    registry_->left.insert(rank);
  }
  for (const auto& group : groups_of(*registry_)) {
    for (int r = 0; r < group->size(); ++r)
      if (group->members()[static_cast<std::size_t>(r)] == rank) group->leave(r);
  }
}

}  // namespace coshard
