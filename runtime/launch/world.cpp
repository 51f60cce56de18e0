#include <coshard/runtime/launch/world.h>

#include <algorithm>
#include <numeric>

#include <coshard/runtime/error.h>
#include "runtime/coro/user_call.h"
#include "runtime/device/stream_times.h"

namespace coshard {
namespace {

// Written before any world is created.
std::vector<ObserverMaker>& observer_makers() {
  static std::vector<ObserverMaker> makers;
  return makers;
}

}  // namespace

// Forwards to all observers; one added during an event is notified from the next event on.
class World::FanOut final : public Observer {
 public:
  explicit FanOut(const std::vector<Observer*>& observers) : observers_(observers) {}

  void planned(std::string_view steps, std::int64_t bytes) override {
    each([&](Observer& o) { o.planned(steps, bytes); });
  }
  void issued(const CommEvent& event, std::int64_t now) override {
    each([&](Observer& o) { o.issued(event, now); });
  }
  void awaiting(const CommEvent& event) override {
    each([&](Observer& o) { o.awaiting(event); });
  }
  void ready(const CommEvent& event, std::int64_t wait_begin, std::int64_t done,
             std::int64_t now) override {
    each([&](Observer& o) { o.ready(event, wait_begin, done, now); });
  }
  void computing(std::string_view op, ComputeClass kind, const DescribeInputs& inputs) override {
    each([&](Observer& o) { o.computing(op, kind, inputs); });
  }
  void computed(std::string_view op, ComputeClass kind, std::int64_t begin,
                std::int64_t end) override {
    each([&](Observer& o) { o.computed(op, kind, begin, end); });
  }
  void ran(const CommEvent& event, std::int64_t begin, std::int64_t end) override {
    each([&](Observer& o) { o.ran(event, begin, end); });
  }
  void stalled(const CommEvent& event, std::int64_t begin, std::int64_t end) override {
    each([&](Observer& o) { o.stalled(event, begin, end); });
  }
  bool times_kernels() const override {
    return std::ranges::any_of(observers_, &Observer::times_kernels);
  }
  void queued(std::uint64_t kernel) override {
    each([&](Observer& o) { o.queued(kernel); });
  }
  void kernel_ran(std::uint64_t kernel, std::int64_t begin, std::int64_t end) override {
    each([&](Observer& o) { o.kernel_ran(kernel, begin, end); });
  }
  void module_enter(std::string_view path) override {
    modules.own().push_back(std::make_shared<const std::string>(path));
    each([&](Observer& o) { o.module_enter(path); });
  }
  void module_exit(std::string_view path) override {
    if (auto& entered = modules.own(); !entered.empty()) entered.pop_back();
    each([&](Observer& o) { o.module_exit(path); });
  }
  void backward_enter() override {
    each([](Observer& o) { o.backward_enter(); });
  }
  void backward_exit() override {
    each([](Observer& o) { o.backward_exit(); });
  }
  void range_enter(std::string_view name) override {
    each([&](Observer& o) { o.range_enter(name); });
  }
  void range_exit(std::string_view name) override {
    each([&](Observer& o) { o.range_exit(name); });
  }

  // Modules entered and not yet left, by this branch and its ancestors.
  using Modules = std::vector<std::shared_ptr<const std::string>>;
  inline static const BranchLocal<Modules> modules;
  const ObserverSlot slot =
      std::make_shared<Observer*>(nullptr);  // null while there are no observers

 private:
  template <class Tell>
  void each(const Tell& tell) {
    for (std::size_t i = 0; i < observers_.size(); ++i) tell(*observers_[i]);
  }
  const std::vector<Observer*>& observers_;
};

World::World(int rank, WorldOptions options, std::shared_ptr<Device> device,
             std::shared_ptr<Communicator> communicator, Executor& executor,
             std::shared_ptr<Communicator> control, std::shared_ptr<Communicator> host)
    : rank_(rank),
      options_(options),
      device_(std::move(device)),
      communicator_(std::move(communicator)),
      executor_(executor),
      stop_request_(std::move(control), options_.stop),
      host_(host ? std::move(host) : communicator_),
      fan_out_(std::make_shared<FanOut>(observers_)) {
  CS_REQUIRE(current() == nullptr, "rank ", rank, ": this thread already has a world");
  communicator_->observe(fan_out_->slot);
  device_->times().observe(fan_out_->slot);
  RankContext::current().world = this;
  for (const ObserverMaker make : observer_makers()) {
    std::unique_ptr<Observer> made = make(rank_);
    if (made == nullptr) continue;
    add_observer(made.get());
    standing_.push_back(std::move(made));
  }
}

World::~World() {
  *fan_out_->slot = nullptr;
  RankContext::current().world = nullptr;
}

std::shared_ptr<Communicator> World::group(std::span<const int> ranks, std::string name,
                                           CallSite site) {
  const UserCall user(site);
  CS_REQUIRE(!ranks.empty(), "group ", name, ": the list of ranks is empty");
  std::vector<bool> listed(static_cast<std::size_t>(size()));
  for (const int rank : ranks) {
    CS_REQUIRE(rank >= 0 && rank < size(), "group ", name, ": rank ", rank, " is out of range for ",
               size(), " ranks");
    const auto at = static_cast<std::size_t>(rank);
    CS_REQUIRE(!listed[at], "group ", name, ": rank ", rank, " is listed twice");
    listed[at] = true;
  }
  if (!listed[static_cast<std::size_t>(rank_)]) return nullptr;
  for (const Group& known : groups_) {
    if (std::ranges::equal(known.ranks, ranks)) return known.communicator;
  }
  Group made{{ranks.begin(), ranks.end()}, communicator_->subgroup(ranks, std::move(name))};
  groups_.push_back(std::move(made));
  return groups_.back().communicator;
}

Communicator& World::files() {
  if (files_ == nullptr) {
    std::vector<int> all(static_cast<std::size_t>(size()));
    std::iota(all.begin(), all.end(), 0);
    files_ = host_->subgroup(all, "files");
    files_->observe(fan_out_->slot);
  }
  return *files_;
}

Task<bool> World::stop_requested(CallSite site) { return stop_request_.ask(site); }

void World::add_observer(Observer* observer) {
  CS_REQUIRE(observer != nullptr, "add_observer: the observer is null");
  observers_.push_back(observer);
  *fan_out_->slot = fan_out_.get();
}

void World::remove_observer(Observer* observer) {
  std::erase(observers_, observer);
  if (observers_.empty()) *fan_out_->slot = nullptr;
}

Observer& World::observer() { return *fan_out_; }

std::uint64_t World::must_finish(std::string text) {
  unfinished_.emplace(++must_finish_, std::move(text));
  return must_finish_;
}
void World::finished(std::uint64_t what) noexcept { unfinished_.erase(what); }
void World::require_finished() const {
  CS_REQUIRE(unfinished_.empty(), unfinished_.begin()->second);
}

std::shared_ptr<const std::string> World::module() const {
  const FanOut::Modules& entered = FanOut::modules.get();
  return entered.empty() ? nullptr : entered.back();
}

void World::module_left(std::string_view path, const std::exception_ptr& error) {
  constexpr std::size_t kKept = 4;  // siblings may fail together
  for (const Left& left : left_)
    if (left.error == error) return;
  if (left_.size() == kKept) left_.erase(left_.begin());
  left_.push_back({error, std::string(path)});
  note_left(error, rank_, path);
}

std::string World::module_of(const std::exception_ptr& error) const {
  for (const Left& left : left_)
    if (left.error == error) return left.module;
  return "";
}

bool observe_worlds(ObserverMaker make) {
  observer_makers().push_back(make);
  return true;
}

World* World::current() { return static_cast<World*>(RankContext::current().world); }

}  // namespace coshard
