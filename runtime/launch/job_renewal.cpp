// Between a run that failed and the next one: all processes agree that there is a next one.
#include <algorithm>
#include <set>
#include <span>
#include <variant>

#include <coshard/runtime/coro/rank_context.h>
#include <coshard/runtime/error.h>
#include "runtime/comm/peer_failure.h"
#include "runtime/launch/job.h"

namespace coshard {
namespace {

using std::chrono::milliseconds;

constexpr std::int64_t kLookAgainNs = 100'000;

}  // namespace

// Stays so: the others may have given up waiting.
void Job::refuse_to_begin(const std::string& why) {
  engine_->halt();
  liveness_->say(str_cat(kCannot, why));
  throw PeerFailure(
      str_cat("no run can follow the one that failed: ", why, ": restart all processes"));
}

// "process 1 (pid 4711 on node1) has died: its connection closed"; empty: all are there. One that
// only tells of another is named last, and only if it was the first to refuse.
std::string Job::end_of_any() const {
  const std::scoped_lock lock(mutex_);
  const auto tells = [](const auto& one) { return one.second.how.starts_with(kCannot); };
  auto found = std::ranges::find_if_not(ended_, tells);
  if (found == ended_.end()) found = ended_.begin();
  if (found == ended_.end()) return "";
  const std::string& how = found->second.how;
  if (tells(*found) && how.find(kCannot, kCannot.size()) != std::string::npos)
    return how.substr(kCannot.size());  // that another refused
  return str_cat(text(found->first), ' ', how);
}

void Job::await_renewal(milliseconds deadline, const std::function<bool()>& over,
                        const std::function<std::string()>& missing) {
  Parker& parker = RankContext::current().parker();
  const std::int64_t begin = parker.now();
  while (!over()) {
    if (const std::string end = end_of_any(); !end.empty()) refuse_to_begin(end);
    if (deadline > milliseconds(0) && std::chrono::nanoseconds(parker.now() - begin) > deadline)
      refuse_to_begin(missing());
    parker.park(parker.now() + kLookAgainNs);
  }
}

// Those of `run` are kept for it.
void Job::drop_notices_before(std::uint64_t run) {
  engine_->on_notice(
      [run, begun = std::set<int>()](int from, std::span<const std::byte> bytes) mutable {
        const Notice notice = notice_of(bytes);
        const auto* its = std::get_if<RunNotice>(&notice);
        if (its != nullptr && its->run >= run) begun.insert(from);
        return !begun.contains(from);
      });
}

void Job::begin_again(milliseconds deadline) {
  struct Listening {
    Job& job;
    ~Listening() {
      job.engine_->on_broken(nullptr);
      job.engine_->on_notice(nullptr);
      job.liveness_->listen({});
    }
  } const listening{*this};
  engine_->on_broken([](const std::string&) {});  // obstacle() returns it
  liveness_->listen(
      {.lost =
           [this](int process, const std::string& why) {
             const std::scoped_lock lock(mutex_);
             ended_.emplace(process, End{str_cat("has died: ", why), 0});
           },
       .silent = [this](int process, milliseconds since) { warn_of_silence(text(process), since); },
       .said =
           [this](int from, const std::string& text) {
             if (heard(from, text)) return;
             const std::scoped_lock lock(mutex_);
             unheard_.emplace_back(from, text);
           }});
  if (const std::string end = end_of_any(); !end.empty()) refuse_to_begin(end);
  if (const std::string obstacle = engine_->obstacle(); !obstacle.empty())
    refuse_to_begin(obstacle);
  liveness_->say(str_cat(kBegins, runs_ + 1));
  const auto all_begin = [this] {
    const std::scoped_lock lock(mutex_);
    return begins_.size() == table_.size();
  };
  await_renewal(deadline, all_begin, [&] {
    const std::scoped_lock lock(mutex_);
    std::string missing;
    for (int p = 0; p < processes(); ++p)
      if (!begins_.contains(p)) missing += str_cat(missing.empty() ? "" : ", ", text(p));
    return str_cat(missing, " did not run ranks again within ", seconds_text(deadline));
  });
  std::uint64_t run = 0;
  {
    const std::scoped_lock lock(mutex_);
    for (const auto& [process, its] : begins_) run = std::max(run, its);
    begins_.clear();
  }
  runs_ = run - 1;
  drop_notices_before(run);
  engine_->renew(run);
  const auto renewed = [this] {
    if (engine_->halted()) refuse_to_begin(engine_->obstacle());
    return engine_->renewed();
  };
  await_renewal(deadline, renewed, [&] {
    return str_cat(engine_->unended(), " is still in flight after ", seconds_text(deadline));
  });
}

}  // namespace coshard
