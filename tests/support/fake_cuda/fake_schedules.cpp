#include "tests/support/fake_cuda/fake_schedules.h"

#include <algorithm>
#include <set>

namespace coshard::testing {
namespace {

using Queued = FakeDriver::Queued;

// All ways to put `count` things into at most `most` boxes that are alike.
std::vector<std::vector<int>> partitions(std::size_t count, int most) {
  std::vector<std::vector<int>> all = {{}};
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<std::vector<int>> longer;
    for (const auto& one : all) {
      const int used = one.empty() ? 0 : *std::ranges::max_element(one) + 1;
      for (int box = 0; box < std::min(used + 1, most); ++box) {
        longer.push_back(one);
        longer.back().push_back(box);
      }
    }
    all = std::move(longer);
  }
  return all;
}

std::map<int, std::vector<int>> streams_of(const std::vector<Queued>& ops) {
  std::map<int, std::set<int>> found;
  for (const Queued& op : ops) found[op.device].insert(op.stream);
  std::map<int, std::vector<int>> all;
  for (const auto& [device, streams] : found) all[device].assign(streams.begin(), streams.end());
  return all;
}

}  // namespace

FakeSchedules::FakeSchedules(const std::vector<Queued>& ops, const Places& places, int residents)
    : ops_(ops), residents_(residents) {
  std::map<std::pair<int, int>, std::vector<std::size_t>> queues;
  std::map<std::pair<int, int>, std::size_t> last;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const std::pair stream(ops[i].device, ops[i].stream);
    queues[{ops[i].device, places.at(stream)}].push_back(i);
    const auto previous = last.find(stream);
    before_.push_back(previous == last.end() ? -1 : static_cast<std::ptrdiff_t>(previous->second));
    last[stream] = i;
    for (const auto& meeting : ops[i].meetings) {
      meetings_[meeting.id].push_back(i);
      names_.try_emplace(meeting.id, static_cast<char>('A' + names_.size()));
    }
  }
  for (auto& [where, queue] : queues) queues_.push_back(std::move(queue));
}

int FakeSchedules::residents_on(const State& state, int device) const {
  int count = 0;
  for (std::size_t i = 0; i < ops_.size(); ++i)
    count += ops_[i].device == device && state[i] == Begun ? 1 : 0;
  return count;
}

// For the op at the head of a queue.
bool FakeSchedules::may_start(const State& state, std::size_t op) const {
  if (before_[op] >= 0 && state[static_cast<std::size_t>(before_[op])] != Done) return false;
  const Queued& queued = ops_[op];
  if (!std::ranges::all_of(queued.after, [&](std::size_t at) { return state[at] == Done; }))
    return false;
  if (std::ranges::any_of(queued.after_launch,
                          [&](std::size_t at) { return state[at] == Waiting; }))
    return false;
  return !queued.kernel || residents_on(state, queued.device) < residents_;
}

// Whether a kernel that has begun has met its peers.
bool FakeSchedules::may_end(const State& state, std::size_t op) const {
  return std::ranges::all_of(ops_[op].meetings, [&](const FakeDriver::Meeting& meeting) {
    const auto& peers = meetings_.at(meeting.id);
    return peers.size() == meeting.ranks &&
           std::ranges::all_of(peers, [&](std::size_t at) { return state[at] != Waiting; });
  });
}

void FakeSchedules::settle(State& state) const {
  for (bool more = true; more;) {
    more = false;
    for (const auto& queue : queues_)
      for (const std::size_t op : queue) {
        if (state[op] != Waiting) continue;
        if (ops_[op].kernel || !may_start(state, op)) break;
        state[op] = Done;
        more = true;
      }
  }
}

std::vector<FakeSchedules::Step> FakeSchedules::steps(const State& state) const {
  std::vector<Step> all;
  for (const auto& queue : queues_) {
    const auto head =
        std::ranges::find_if(queue, [&](std::size_t op) { return state[op] == Waiting; });
    if (head != queue.end() && may_start(state, *head))
      all.push_back({*head, ops_[*head].meetings.empty() ? Done : Begun});
  }
  for (std::size_t op = 0; op < ops_.size(); ++op)
    if (state[op] == Begun && may_end(state, op)) all.push_back({op, Done});
  return all;
}

std::string FakeSchedules::text_of(const Step& step) const {
  std::string text = std::to_string(ops_[step.op].device);
  text += step.to == Begun                 ? " begins "
          : ops_[step.op].meetings.empty() ? " runs a kernel"
                                           : " ends ";
  for (const auto& meeting : ops_[step.op].meetings) text += names_.at(meeting.id);
  return text;
}

FakeSchedules::Counts FakeSchedules::count(const State& state) {
  if (const auto known = known_.find(state); known != known_.end()) return known->second;
  Counts counts;
  const std::vector<Step> next = steps(state);
  for (const Step& step : next) {
    State then = state;
    then[step.op] = step.to;
    settle(then);
    path_.push_back(step);
    const Counts found = count(then);
    path_.pop_back();
    counts.schedules += found.schedules;
    counts.hangs += found.hangs;
  }
  if (next.empty()) {
    const bool over = std::ranges::all_of(state, [](char one) { return one == Done; });
    counts = {1, over ? 0U : 1U};
    if (!over && example_.empty())
      for (const Step& step : path_) example_ += (example_.empty() ? "" : ", ") + text_of(step);
  }
  known_[state] = counts;
  return counts;
}

FakeSchedules::Found FakeSchedules::search() {
  State begin(ops_.size(), Waiting);
  settle(begin);
  const Counts counts = count(begin);
  return {known_.size(), counts.schedules, counts.hangs, example_};
}

void FakeSchedules::Found::add(const Found& other) {
  states += other.states;
  schedules += other.schedules;
  hangs += other.hangs;
  if (example.empty()) example = other.example;
}

FakeSchedules::Found FakeSchedules::search_all(const std::vector<Queued>& ops, int queues,
                                               int residents) {
  std::vector<Places> all = {{}};
  for (const auto& [device, streams] : streams_of(ops)) {
    std::vector<Places> longer;
    for (const Places& one : all)
      for (const std::vector<int>& boxes : partitions(streams.size(), queues)) {
        longer.push_back(one);
        for (std::size_t i = 0; i < streams.size(); ++i)
          longer.back()[{device, streams[i]}] = boxes[i];
      }
    all = std::move(longer);
  }
  Found found;
  for (const Places& places : all) found.add(FakeSchedules(ops, places, residents).search());
  return found;
}

}  // namespace coshard::testing
