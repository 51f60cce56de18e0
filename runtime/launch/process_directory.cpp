// Ranks in several processes of one job, the same number in each.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <iostream>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <thread>

#include <coshard/runtime/error.h>
#include <coshard/runtime/launch/world.h>
#include "runtime/comm/local/thread_group.h"
#include "runtime/comm/mpi/mpi_library.h"
#include "runtime/comm/mpi/mpi_ranks.h"
#include "runtime/launch/job.h"
#include "runtime/launch/launcher.h"
#include "runtime/launch/rank_directory.h"

namespace coshard {
namespace {

// The job of a program that has initialised MPI itself.
std::optional<Launched> initialised(const std::string& mpi) {
  if (mpi.empty() || !is_initialised() || !has_shim(mpi)) return std::nullopt;
  MpiPlace place;
  if (!mpi_api(mpi, "the program has initialised MPI").initialised(&place)) return std::nullopt;
  Launched job{.launcher = "MPI", .mpi = mpi, .processes = place.size, .process = place.rank};
  job.said = str_cat("the program has initialised MPI with ", place.size, " processes");
  return job;
}

// None: this process is the only one. On GPUs a job with a rendezvous address needs no MPI: NCCL
// moves the data.
std::optional<Launched> job(DeviceKind device) {
  std::optional<Launched> found = launched();
  const std::string loaded = loaded_mpi();
  if (!found || found->mpi.empty()) {
    const auto own = initialised(loaded);
    if (!found) return own && own->processes > 1 ? own : std::nullopt;
    if (!own && device != DeviceKind::Cpu && !found->master_addr.empty()) return found;
    if (!own) fail_without_mpi(*found);
    found->mpi = loaded;
  }
  CS_REQUIRE(loaded.empty() || loaded == found->mpi, found->said, " come from ",
             launchers_of(found->mpi), ", but the program has loaded ",
             loaded == "mpich" ? "MPICH" : "Open MPI", ": start it with ", launchers_of(loaded));
  return found;
}

std::unique_ptr<RankDirectory> (*maker_for_tests)(const WorldOptions&) = nullptr;

class ProcessDirectory final : public RankDirectory {
 public:
  ProcessDirectory(const WorldOptions& options, Job& job, Job::Turn turn)
      : job_(job),
        turn_(std::move(turn)),
        run_(job.next_run()),
        per_process_(options.ranks / job.processes()),
        size_(options.ranks),
        ranks_(std::make_shared<MpiRanks>(job.engine(), per_process_, run_)),
        thread_group_(options.ranks, "world",
                      {options.link, std::max(1, options.progress_threads), ranks_, run_}),
        here_(static_cast<std::size_t>(per_process_)) {
    std::iota(here_.begin(), here_.end(), job.engine()->process() * per_process_);
    const std::scoped_lock alone(job_.handing_over());
    job_.engine()->on_broken([this](const std::string& problem) { broken(problem); });
    ranks_->tell({[this](int rank) { thread_group_.leave(rank); },
                  [this](const std::string& cause) {
                    say(PoisonNotice{run_, 0, cause});
                    heard(cause);
                  },
                  [this](const PoisonNotice& poison) { say(poison); },
                  [this] { thread_group_.poll_remote(); }});
    job_.liveness().set_deadline(options.timeout);
    job_.engine()->set_deadline(std::chrono::nanoseconds(options.timeout).count());
    for (const auto& [from, text] : job_.take_unheard()) said(from, text);
    job_.liveness().listen(
        {[this](int process, const std::string& why) { lost(process, "has died: " + why); },
         [this](int process, std::chrono::milliseconds since) {
           Job::warn_of_silence(who(process), since);
         },
         [this](int from, const std::string& text) { said(from, text); },
         [engine = job.engine()] { return engine->moves_slowly(); },
         [engine = job.engine()] { return engine->moves_steadily(); },
         [engine = job.engine()](int process) { engine->may_wait(process); }});
    // What arrived while an earlier run was listening.
    for (const PoisonNotice& poison : job_.kept_poisons(run_)) heard(poison);
    for (int p = 0; p < job_.processes(); ++p)
      if (const auto how = job_.ended_before(p, run_)) lost(p, *how);
  }
  // On a caller's context the next run may have begun and be the listener.
  ~ProcessDirectory() override {
    const std::scoped_lock alone(job_.handing_over());
    const bool is_latest = job_.is_latest(run_);
    if (is_latest) {
      job_.liveness().listen({});
      job_.engine()->on_broken(nullptr);
    }
    ranks_->stop(is_latest);
    if (!failed_) job_.note_ended(run_);
  }
  int size() const override { return size_; }
  const std::vector<int>& here() const override { return here_; }
  ThreadGroup* thread_group() override { return &thread_group_; }
  std::shared_ptr<Communicator> control(int rank) override {
    return thread_group_.communicator(rank);
  }
  void fail(const std::string& cause) override {
    if (failed_.exchange(true)) return;
    job_.engine()->halt();  // before buffers that are being sent are freed
    thread_group_.poison(cause);
    say(PoisonNotice{run_, 0, cause});
  }
  void on_failure(std::function<void(const std::string&)> told) override {
    const std::scoped_lock lock(telling_);
    told_ = std::move(told);
    if (!early_.empty() && told_) told_(std::exchange(early_, ""));
  }
  // Decided by the order in which process 0 learned of failures.
  bool reports_failure() override {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::milliseconds(300), [this] { return ours_.has_value(); });
    return ours_.value_or(true);
  }
  void count_in(DeadlockDetector&) override {}  // ranks elsewhere may wake these
  void leave(int rank) override {
    thread_group_.leave(rank);
    // After a failure, sent behind the failure's notice, so that it is not taken for the cause.
    if (failed_)
      say(LeftNotice{run_, rank});
    else
      ranks_->send_to_all(LeftNotice{run_, rank});
  }
  // Peers may still need messages in flight, and their last notices must be received. Nobody drives
  // afterwards, so this process's notices must have left; a block that its receiver dropped may
  // stay.
  void end() override {
    while (!over()) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  bool over() override {
    constexpr int kMost = 100;  // this may run on a caller's thread
    for (int i = 0; i < kMost && ranks_->drive();) ++i;
    const auto now = std::chrono::steady_clock::now();
    if (failed_ && !std::exchange(told_left_, true)) {
      latest_ = now + std::chrono::seconds(2);
      for (const int rank : here_) say(LeftNotice{run_, rank});  // MPI may not have delivered these
    }
    const bool done = all_left() && (failed_ || !job_.engine()->sends_notices());
    if (!done && (!told_left_ || now < latest_)) return false;
    turn_.reset();
    return true;
  }
  bool alive(int rank) const override { return !thread_group_.left(rank); }
  std::string last_seen(int rank) const override { return thread_group_.last_seen(rank); }
  int place_on_host(int rank) const override {
    return job_.before_on_this_host() * per_process_ + rank - here_.front();
  }
  std::vector<int> hosts() const override {
    if (job_.on_one_host()) return {};
    const std::vector<int> of_processes = job_.hosts();
    std::vector<int> hosts;
    for (int r = 0; r < size_; ++r)
      hosts.push_back(of_processes[static_cast<std::size_t>(r / per_process_)]);
    return hosts;
  }

 private:
  void say(const Notice& notice) {
    const std::vector<std::byte> bytes = to_bytes(notice);
    job_.liveness().say(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  void said(int from, const std::string& text) {
    if (job_.heard(from, text)) {
      if (const auto how = job_.ended_before(from, run_)) lost(from, *how);
      return;
    }
    const Notice notice = notice_of(std::as_bytes(std::span(text)));
    if (const auto* left = std::get_if<LeftNotice>(&notice)) {
      if (left->run == run_) thread_group_.leave(left->rank);
      return;
    }
    const auto& poison = std::get<PoisonNotice>(notice);
    if (poison.run > run_) return job_.keep(poison);
    if (poison.run < run_) return;
    const bool ours = from == job_.engine()->process();
    if (poison.group == 0) note_first(ours);
    if (!ours) heard(poison);
  }
  void heard(const PoisonNotice& poison) {
    if (poison.group != 0) return ranks_->poison_group(poison.group, poison.cause);
    heard(poison.cause);
  }
  void lost(int process, const std::string& how) {
    note_first(true);  // every live process reports it
    heard(str_cat(who(process), ' ', how));
    for (int r = 0; r < per_process_; ++r) thread_group_.leave(process * per_process_ + r);
  }
  // MPI often notices first, with a less specific message, that a process has died.
  void broken(const std::string& problem) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, std::chrono::milliseconds(500), [this] { return failed_.load(); });
    }
    say(PoisonNotice{run_, 0, problem});
    heard(problem);
  }
  // "rank 1, process 1 (pid 71 on node1)"
  std::string who(int process) const {
    const int first = process * per_process_;
    if (per_process_ == 1) return str_cat("rank ", first, ", ", job_.text(process));
    return str_cat("ranks ", first, " to ", first + per_process_ - 1, ", ", job_.text(process));
  }
  void note_first(bool ours) {
    {
      const std::scoped_lock lock(mutex_);
      if (ours_) return;
      ours_ = ours;
    }
    changed_.notify_all();
  }
  void heard(const std::string& cause) {
    if (failed_.exchange(true)) return;
    changed_.notify_all();
    job_.engine()->halt();
    thread_group_.poison(cause);
    const std::scoped_lock lock(telling_);
    if (told_) return told_(cause);
    early_ = cause;
  }
  bool all_left() const {
    for (int r = 0; r < size_; ++r)
      if (!thread_group_.left(r)) return false;
    return true;
  }

  Job& job_;
  Job::Turn turn_;
  std::uint64_t run_;
  int per_process_, size_;
  std::shared_ptr<MpiRanks> ranks_;
  ThreadGroup thread_group_;
  std::vector<int> here_;
  std::atomic<bool> failed_{false};
  bool told_left_ = false;  // used by over(), like latest_: when to give up
  std::chrono::steady_clock::time_point latest_;
  std::mutex telling_;  // guards the two below; held while told_ runs
  std::function<void(const std::string&)> told_;
  std::string early_;  // a failure before told_ was set
  std::mutex mutex_;   // guards ours_
  std::condition_variable changed_;
  std::optional<bool> ours_;  // the job's first failure was in this process
};

}  // namespace

std::unique_ptr<RankDirectory> make_process_directory(const WorldOptions& options) {
  const auto several = job(options.device);
  CS_REQUIRE(several, "not started by a launcher of several processes");
  CS_REQUIRE(options.ranks % several->processes == 0, "ranks ", options.ranks,
             " is not a multiple of the ", several->processes, " processes: ", several->said);
  Job& job = Job::current(*several, options.timeout);
  return make_process_directory(options, job);
}

std::unique_ptr<RankDirectory> make_process_directory(const WorldOptions& options, Job& job) {
  Job::Turn turn = job.take_turn();
  CS_REQUIRE(
      turn,
      "a run of this process has not ended yet: over several processes runs follow one another");
  if (job.engine()->halted()) job.begin_again(options.timeout);
  return std::make_unique<ProcessDirectory>(options, job, std::move(turn));
}

void use_directories(std::unique_ptr<RankDirectory> (*maker)(const WorldOptions&)) {
  maker_for_tests = maker;
}

std::unique_ptr<RankDirectory> make_directory(const WorldOptions& options) {
  if (maker_for_tests != nullptr) return maker_for_tests(options);
  return job(options.device) ? make_process_directory(options) : make_thread_directory(options);
}

Processes processes(const WorldOptions& options) {
  const auto several = job(options.device);
  if (!several) return {};
  const MpiApi& api = several->mpi.empty() ? Store::api() : mpi_api(several->mpi, several->said);
  return {several->processes, several->local_processes.value_or(several->processes),
          several->process, api.library(), api.blocking};
}

}  // namespace coshard
