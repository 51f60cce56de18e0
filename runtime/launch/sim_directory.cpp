#include "runtime/launch/sim_directory.h"

#include <numeric>
#include <utility>
#include <variant>

#include <coshard/runtime/error.h>
#include <coshard/runtime/launch/world.h>

namespace coshard {
namespace {

constexpr std::uint64_t kRun = 1;

}  // namespace

SimDirectory::SimDirectory(const WorldOptions& options, int processes, const MpiApi& api,
                           Hooks hooks)
    : hooks_(std::move(hooks)),
      per_process_(options.ranks / processes),
      size_(options.ranks),
      engine_(std::make_shared<MpiEngine>(api)),
      ranks_(std::make_shared<MpiRanks>(engine_, per_process_, kRun)),
      thread_group_(options.ranks, "world", {options.link, 0, ranks_, kRun}),
      here_(static_cast<std::size_t>(per_process_)) {
  std::iota(here_.begin(), here_.end(), engine_->process() * per_process_);
  ranks_->tell({[this](int rank) { thread_group_.leave(rank); },
                [this](const std::string& cause) {
                  hooks_.say(PoisonNotice{kRun, 0, cause});
                  heard(cause);
                },
                [this](const PoisonNotice& poison) { hooks_.say(poison); }});
}

// Messages in flight are abandoned: all programs have ended.
SimDirectory::~SimDirectory() {
  hooks_.gone();
  ranks_->stop();
  engine_->forget();
}

bool SimDirectory::failed_now() {
  if (std::exchange(failed_, true)) return false;
  first_ = hooks_.note_failed();
  engine_->halt();
  return true;
}

void SimDirectory::fail(const std::string& cause) {
  if (!failed_now()) return;
  thread_group_.poison(cause);
  hooks_.say(PoisonNotice{kRun, 0, cause});
}

void SimDirectory::heard(const std::string& cause) {
  if (!failed_now()) return;
  thread_group_.poison(cause);
  if (told_) return told_(cause);
  early_ = cause;
}

void SimDirectory::on_failure(std::function<void(const std::string&)> told) {
  told_ = std::move(told);
  if (!early_.empty() && told_) told_(std::exchange(early_, ""));
}

void SimDirectory::leave(int rank) {
  thread_group_.leave(rank);
  if (failed_)
    hooks_.say(LeftNotice{kRun, rank});
  else
    ranks_->send_to_all(LeftNotice{kRun, rank});
}

// Peers may still need messages in flight.
void SimDirectory::end() {
  while (!failed_ && !hooks_.all_ended())
    if (!ranks_->drive()) hooks_.sleep();
}

void SimDirectory::heard(const Notice& notice) {
  if (const auto* left = std::get_if<LeftNotice>(&notice)) return thread_group_.leave(left->rank);
  const auto& poison = std::get<PoisonNotice>(notice);
  if (poison.group != 0) return ranks_->poison_group(poison.group, poison.cause);
  heard(poison.cause);
}

void SimDirectory::lost(int process, const std::string& why) {
  heard(str_cat(who(process), " has died: ", why));
  for (int r = 0; r < per_process_; ++r) thread_group_.leave(process * per_process_ + r);
}

void SimDirectory::killed(const std::string& why) {
  heard(str_cat(who(engine_->process()), " has died: ", why));
}

// "ranks 2 to 3, process 1"
std::string SimDirectory::who(int process) const {
  const int first = process * per_process_;
  if (per_process_ == 1) return str_cat("rank ", first, ", process ", process);
  return str_cat("ranks ", first, " to ", first + per_process_ - 1, ", process ", process);
}

}  // namespace coshard
