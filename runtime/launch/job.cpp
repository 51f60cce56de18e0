#include "runtime/launch/job.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <iostream>
#include <iterator>
#include <set>
#include <span>
#include <thread>
#include <variant>

#include <coshard/runtime/coro/rank_context.h>
#include <coshard/runtime/error.h>
#include "runtime/comm/mpi/mpi_library.h"
#include "runtime/comm/peer_failure.h"
#include "runtime/control/failure_record.h"
#include "runtime/host.h"
#include "runtime/launch/joined_processes.h"
#include "runtime/printable.h"
#include "runtime/start_thread.h"

namespace coshard {
namespace {

using std::chrono::milliseconds;

HelloNotice this_process() { return {::getpid(), host_name(), host_id(), pid_space_id()}; }

// MPI_Init waits for all processes and cannot be interrupted.
class InitWatch {
 public:
  InitWatch(const Launched& launched, milliseconds deadline)
      : launcher_(launcher_above(::getppid())), here_(launcher_, launched.process) {
    if (deadline == milliseconds(0)) return;
    thread_ = start_thread([this, launched, deadline] {
      std::unique_lock lock(mutex_);
      if (changed_.wait_for(lock, deadline, [this] { return over_; })) return;
      const int local = launcher_ == 0 ? 0 : launched.local_processes.value_or(0);
      const std::string absent =
          absence_text(launched.processes, local, here_.here(launched.processes));
      const std::string why = str_cat("MPI has not started within ", seconds_text(deadline), ": ",
                                      absent, "; ", launched.said);
      report_failure({.kind = "timeout", .text = why});
      std::cerr << str_cat("error: ", why, '\n') << std::flush;
      std::_Exit(1);
    });
  }
  ~InitWatch() {
    {
      const std::scoped_lock lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  InitWatch(const InitWatch&) = delete;
  InitWatch& operator=(const InitWatch&) = delete;

 private:
  int launcher_;
  JoinedProcesses here_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

// "ending 0 2": with exit code 0, after two runs. "given up 1": after a failed run; others do not
// wait for this process.
constexpr std::string_view kEnding = "ending ", kGivenUp = "given up ";
int exit_status = 0;
std::atomic<int> failed_process{-1};  // another, after this one had ended with exit code 0

// For launchers that report any one process's status as that of the job.
void exit_as_the_others(int status, void*) {
  if (status != 0 || failed_process < 0) return;
  std::cout.flush();
  std::fflush(nullptr);
  std::_Exit(1);
}

// MPI_Finalize of MPICH 4.0 over TCP may hang (in plain MPI programs too); all processes have
// finished their work by then.
class FinalizeWatch {
 public:
  FinalizeWatch() = default;
  ~FinalizeWatch() { over_.set_value(); }
  FinalizeWatch(const FinalizeWatch&) = delete;
  FinalizeWatch& operator=(const FinalizeWatch&) = delete;

 private:
  std::promise<void> over_;
  std::jthread thread_{[over = over_.get_future()] {
    if (over.wait_for(std::chrono::seconds(3)) == std::future_status::ready) return;
    std::cerr << "warning: MPI_Finalize did not return within 3 s: exiting without it\n"
              << std::flush;
    std::_Exit(exit_status);
  }};
};

std::shared_ptr<MpiEngine> engine_of(const MpiApi& api, const Launched& launched,
                                     milliseconds deadline) {
  const InitWatch watch(launched, deadline);
  auto engine = std::make_shared<MpiEngine>(api);
  CS_REQUIRE(engine->processes() == launched.processes && engine->process() == launched.process,
             launched.said, ", but MPI reports size ", engine->processes(), " and rank ",
             engine->process(), ": start the program with ", launchers_of(launched.mpi));
  return engine;
}

// Drives the engine until `so()`; false: the deadline expired first, by the caller's clock.
template <class So>
bool drive_until(MpiEngine& engine, milliseconds deadline, const So& so) {
  constexpr std::int64_t kPollNs = 100'000;
  Parker& parker = RankContext::current().parker();
  const std::int64_t begin = parker.now();
  while (!so()) {
    if (deadline > milliseconds(0) && std::chrono::nanoseconds(parker.now() - begin) > deadline)
      return false;
    if (!engine.drive()) parker.park(parker.now() + kPollNs);
  }
  return true;
}

std::string runs_text(std::uint64_t runs) { return str_cat(runs, runs == 1 ? " run" : " runs"); }

}  // namespace

namespace {

Job made(const Launched& launched, milliseconds deadline) {
  if (!launched.mpi.empty()) {
    // From now on MPI has receives posted into the engine's memory. It is kept even if the Job's
    // construction fails, and the next Job uses it.
    static const auto engine = engine_of(mpi_api(launched.mpi, launched.said), launched, deadline);
    return {engine, launched, deadline};
  }
  auto store =
      std::make_unique<Store>(launched, meeting_point(launched, own_environment()), deadline);
  return {Store::api(), launched, deadline, std::move(store)};
}

}  // namespace

Job& Job::current(const Launched& launched, milliseconds deadline) {
  static const int last = ::on_exit(exit_as_the_others, nullptr);  // so that it runs after ~Job
  (void)last;
  static Job job = made(launched, deadline);
  static const int told = ::on_exit([](int status, void*) { exit_status = status; }, nullptr);
  (void)told;
  return job;
}

Job::Job(const MpiApi& api, const Launched& launched, milliseconds deadline,
         std::unique_ptr<Store> store)
    : Job(engine_of(api, launched, deadline), launched, deadline, std::move(store)) {}

Job::Job(std::shared_ptr<MpiEngine> engine, const Launched& launched, milliseconds deadline,
         std::unique_ptr<Store> store)
    : store_(std::move(store)),
      engine_(std::move(engine)),
      table_(static_cast<std::size_t>(launched.processes)),
      liveness_(store_ != nullptr ? store_->liveness() : nullptr) {
  engine_->begin_again();
  try {
    meet(deadline);
  } catch (...) {
    engine_->give_up();
    throw;
  }
}

void Job::meet(milliseconds deadline) {
  const auto mine = static_cast<std::size_t>(engine_->process());
  table_[mine] = this_process();
  if (engine_->process() == 0) {
    meet_all(deadline);
  } else {
    engine_->send_notice(0, to_bytes(table_[mine]));
    meet_first(deadline);
  }
  engine_->on_notice(nullptr);
  engine_->on_hosts(hosts());
  watch_neighbours();
}

// Watches process 0, the hub of all connections, and the next process on this host, so that every
// process is watched by another.
void Job::watch_neighbours() {
  const int self = engine_->process();
  const auto& mine = table_[static_cast<std::size_t>(self)];
  std::vector<int> here;
  for (int p = 0; p < processes(); ++p) {
    const auto& other = table_[static_cast<std::size_t>(p)];
    if (other.host == mine.host && other.pid_space == mine.pid_space) here.push_back(p);
  }
  const auto own = std::ranges::find(here, self);
  const int next = own + 1 == here.end() ? here.front() : own[1];
  for (const int p : here)
    if (p != self && (p == 0 || p == next))
      liveness_->watch(p, static_cast<int>(table_[static_cast<std::size_t>(p)].pid));
}

void Job::meet_all(milliseconds deadline) {
  std::vector<bool> there(table_.size());
  there[0] = true;
  engine_->on_notice([&](int from, std::span<const std::byte> bytes) {
    const Notice notice = notice_of(bytes);
    const auto* hello = std::get_if<HelloNotice>(&notice);
    if (hello == nullptr) return false;
    table_[static_cast<std::size_t>(from)] = *hello;
    there[static_cast<std::size_t>(from)] = true;
    return true;
  });
  if (!drive_until(*engine_, deadline, [&] { return std::ranges::count(there, false) == 0; })) {
    std::string missing;
    for (std::size_t p = 0; p < there.size(); ++p)
      if (!there[p]) missing += str_cat(missing.empty() ? "" : ", ", p);
    fail(ErrorKind::CommFailed,
         str_cat(std::ranges::count(there, false), " of ", table_.size(),
                 " processes did not join the job within ", seconds_text(deadline), ": ", missing));
  }
  if (liveness_ == nullptr) liveness_ = std::make_shared<Liveness>(processes(), !on_one_host());
  const ControlAddress& address = liveness_->address();
  const WelcomeNotice welcome{table_, address.hosts, address.port, address.secret};
  for (int p = 1; p < processes(); ++p) engine_->send_notice(p, to_bytes(welcome));
}

void Job::meet_first(milliseconds deadline) {
  ControlAddress address;
  engine_->on_notice([&](int, std::span<const std::byte> bytes) {
    const Notice notice = notice_of(bytes);
    const auto* welcome = std::get_if<WelcomeNotice>(&notice);
    if (welcome == nullptr) return false;
    table_ = welcome->processes;
    address = {welcome->addresses, welcome->port, welcome->secret};
    return true;
  });
  if (!drive_until(*engine_, deadline, [&] { return address.port != 0; }))
    throw PeerFailure(str_cat("process ", engine_->process(), ": process 0 did not answer within ",
                              seconds_text(deadline),
                              ": it is waiting for other processes, or has not called run()"));
  const milliseconds most = deadline > milliseconds(0) ? deadline : milliseconds(60'000);
  if (liveness_ == nullptr)
    liveness_ = std::make_shared<Liveness>(engine_->process(), processes(), address, most);
}

bool Job::heard(int from, const std::string& text) {
  const auto begins_with = [&](std::string_view word) { return text.starts_with(word); };
  const auto number_after = [&](std::string_view word) {
    return std::strtol(text.c_str() + word.size(), nullptr, 10);
  };
  const std::scoped_lock lock(mutex_);
  if (begins_with(kBegins)) {
    begins_[from] = static_cast<std::uint64_t>(number_after(kBegins));
  } else if (begins_with(kCannot)) {
    ended_.emplace(from, End{text, 0});
  } else if (begins_with(kGivenUp)) {
    ended_.emplace(from, End{str_cat("has ended with exit code ", number_after(kGivenUp)), {}});
    engine_->give_up();
  } else if (begins_with(kEnding)) {
    char* after = nullptr;
    const long status = std::strtol(text.c_str() + kEnding.size(), &after, 10);
    const std::uint64_t runs = std::strtoull(after, nullptr, 10);
    ended_.emplace(
        from, End{str_cat("has ended with exit code ", status, " after ", runs_text(runs)), runs});
  } else {
    return false;
  }
  return true;
}

std::optional<std::string> Job::ended_before(int process, std::uint64_t run) const {
  const std::scoped_lock lock(mutex_);
  const auto found = ended_.find(process);
  if (found == ended_.end() || !found->second.runs || *found->second.runs >= run)
    return std::nullopt;
  return str_cat(found->second.how, ", during run ", run, " of the others");
}

// Returns when all processes end as well; exits with an error that names one that dies instead.
void Job::await_others() {
  liveness_->listen({[this](int process, const std::string& why) {
                       const std::string died = str_cat(text(process), " has died: ", why);
                       report_failure(
                           {.kind = "communication failed", .text = died, .of_peer = true});
                       std::cerr << str_cat("error: ", printable(died), '\n') << std::flush;
                       std::_Exit(1);
                     },
                     [this](int process, std::chrono::milliseconds since) {
                       warn_of_silence(text(process), since);
                     },
                     [this](int process, const std::string& text) {
                       if (text.starts_with(kGivenUp) && text != str_cat(kGivenUp, 0))
                         failed_process = process;
                       heard(process, text);
                     }});
  liveness_->say(str_cat(kEnding, exit_status, ' ', ended_runs_.load()));
  const auto all_have = [this] {
    const std::scoped_lock lock(mutex_);
    return ended_.size() == table_.size();
  };
  while (!engine_->given_up() && !all_have())
    if (!engine_->drive()) std::this_thread::sleep_for(std::chrono::microseconds(200));
  if (exit_status != 0 || failed_process < 0) return;
  const std::string why = str_cat("process ", engine_->process(), " ended with exit code 0 after ",
                                  runs_text(ended_runs_), ", and process ", failed_process.load(),
                                  " failed without it: exiting with code 1 instead");
  report_failure({.kind = "communication failed", .text = why});
  std::cerr << str_cat("error: ", why, '\n') << std::flush;
}

Job::~Job() {
  if (liveness_ == nullptr) return;
  if (::getpid() !=
      pid_) {  // a forked child that exits: it has neither the threads nor a part in MPI
    static_cast<void>(new std::shared_ptr<Liveness>(std::move(liveness_)));
    static_cast<void>(new std::shared_ptr<MpiEngine>(std::move(engine_)));
    static_cast<void>(store_.release());
    return;
  }
  if (!liveness_->lost().empty()) engine_->give_up();
  if (engine_->given_up())
    liveness_->say(str_cat(kGivenUp, exit_status));
  else
    await_others();
  liveness_->listen({});
  {
    const FinalizeWatch watch;
    const bool stopped = engine_->stop();
    // After another exit code, leave it to the launcher to end the others.
    if (!stopped && exit_status == 0 && failed_process < 0 && liveness_->lost().empty())
      engine_->leave();
  }
  store_.reset();
  liveness_.reset();
}

bool Job::on_one_host() const {
  return std::ranges::all_of(table_, [&](const auto& p) { return p.host == table_[0].host; });
}

std::vector<int> Job::hosts() const {
  std::vector<std::string> known;
  std::vector<int> hosts;
  for (const HelloNotice& process : table_) {
    const auto found = std::ranges::find(known, process.host);
    hosts.push_back(static_cast<int>(found - known.begin()));
    if (found == known.end()) known.push_back(process.host);
  }
  return hosts;
}

int Job::before_on_this_host() const {
  const auto mine = table_.begin() + engine_->process();
  return static_cast<int>(std::count_if(
      table_.begin(), mine, [&](const HelloNotice& other) { return other.host == mine->host; }));
}

std::string Job::text(int process) const {
  const HelloNotice& known = table_[static_cast<std::size_t>(process)];
  return str_cat("process ", process, " (pid ", known.pid, " on ", known.host_name, ')');
}

void Job::warn_of_silence(const std::string& who, milliseconds since) {
  std::cerr << str_cat("warning: ", who, " has been silent for ",
                       static_cast<double>(since.count() / 100) / 10,
                       " s: it is stopped or starved of CPU time\n")
            << std::flush;
}

void Job::keep(const PoisonNotice& poison) {
  const std::scoped_lock lock(mutex_);
  poisons_.push_back(poison);
}

std::vector<PoisonNotice> Job::kept_poisons(std::uint64_t run) const {
  const std::scoped_lock lock(mutex_);
  std::vector<PoisonNotice> kept;
  std::ranges::copy_if(poisons_, std::back_inserter(kept),
                       [run](const PoisonNotice& poison) { return poison.run == run; });
  return kept;
}

std::string missing_mpi_module(const std::string& mpi) {
  if (has_shim(mpi)) return "";
  std::string places;
  for (const std::string& file : shim_places(mpi))
    places += str_cat(places.empty() ? "" : " or ", file);
  return places;
}

namespace {

constexpr std::int64_t kLookAgainNs = 100'000;

}  // namespace

// Stays so: the others may have given up waiting.
void Job::refuse_to_begin(const std::string& why, bool of_peer) {
  engine_->halt();
  liveness_->say(str_cat(kCannot, why));
  const std::string text =
      str_cat("no run can follow the one that failed: ", why, ": restart all processes");
  if (of_peer) throw PeerFailure(text);
  fail(ErrorKind::CommFailed, text);
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
    if (const std::string end = end_of_any(); !end.empty()) refuse_to_begin(end, true);
    if (deadline > milliseconds(0) && std::chrono::nanoseconds(parker.now() - begin) > deadline)
      refuse_to_begin(missing(), false);
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

void Job::listen_between_runs() {
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
  listen_between_runs();
  if (const std::string end = end_of_any(); !end.empty()) refuse_to_begin(end, true);
  if (const std::string obstacle = engine_->obstacle(); !obstacle.empty())
    refuse_to_begin(obstacle, false);
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
    if (engine_->halted()) refuse_to_begin(engine_->obstacle(), false);
    return engine_->renewed();
  };
  await_renewal(deadline, renewed, [&] {
    return str_cat(engine_->unended(), " is still in flight after ", seconds_text(deadline));
  });
}

}  // namespace coshard
