// One process of a simulation.
#include <coshard/runtime/error.h>
#include <coshard/runtime/launch/world.h>
#include "runtime/comm/local/thread_group.h"
#include "runtime/launch/simulation.h"

namespace coshard {
namespace {

constexpr auto kProgress = std::chrono::microseconds(500);  // within which progress threads poll

}  // namespace

SimProcess::SimProcess(Simulation& all, int number, int ranks)
    : all_(all), number_(number), alive_(ranks) {
  ranks_.run = [this](int rank, Executor& executor) {
    Parker& parker = RankContext::current().parker();
    while (begun_ == nullptr && !over_) {
      early_.push_back(&parker);
      parker.park(0);
    }
    if (begun_ != nullptr) begun_->run(rank, executor);
  };
  ranks_.failed = [this](int rank, const std::exception_ptr& error) {
    if (begun_ != nullptr) begun_->failed(rank, error);
  };
  ranks_.ended = [this](int rank) {
    if (begun_ != nullptr) begun_->ended(rank);
    --alive_;
    awake();
    all_.rank_ended();
  };
}

std::unique_ptr<RankDirectory> SimProcess::make_directory(const WorldOptions& options,
                                                          SimulatedMpi* mpi) {
  if (mpi == nullptr) return make_thread_directory(options);
  SimDirectory::Hooks hooks;
  hooks.say = [this](const Notice& notice) { all_.say(number_, notice); };
  hooks.note_failed = [this] { return all_.note_failed(number_); };
  hooks.sleep = [this] { main_.park(0); };
  hooks.all_ended = [this] { return all_.alive_ == 0; };
  hooks.gone = [this] {
    directory_ = nullptr;
    group_ = nullptr;
    while (progressing_) main_.park(0);
  };
  auto directory = std::make_unique<SimDirectory>(options, all_.sim_.processes, mpi->api(number_),
                                                  std::move(hooks));
  directory_ = directory.get();
  return directory;
}

void SimProcess::live(Parker& parker, const WorldOptions& options,
                      std::unique_ptr<RankDirectory> directory, const Program& program) {
  main_.fiber = &parker;
  RankContext context(&main_);
  RankContext::exchange(&context);
  try {
    run_ranks_on(*this, options, std::move(directory), program);
  } catch (...) {
    error_ = std::current_exception();
  }
  group_ = nullptr;
  begun_ = nullptr;
  over_ = true;
  for (Parker* rank : early_) rank->unpark();
}

void SimProcess::run(std::span<const int>, ThreadGroup& group, const RankProgram& program) {
  group_ = &group;
  group.use(*this);
  begun_ = &program;
  for (Parker* rank : early_) rank->unpark();
  program.watch();
  while (alive_ > 0) main_.park(0);
}

void SimProcess::MainParker::park(std::int64_t deadline_ns, boost::asio::io_context* asio) {
  RankContext& mine = RankContext::current();
  fiber->park(deadline_ns, asio);
  RankContext::exchange(&mine);
}

void SimProcess::awake() { main_.unpark(); }

void SimProcess::wake() {
  if (group_ != nullptr) group_->wake();
}

void SimProcess::arrived() {
  wake();
  awake();
  progress_soon();
}

// Immediately, before any rank has polled, or later, at random.
void SimProcess::progress_soon() {
  if (progress_ns_ != 0) return;
  progress_ns_ = all_.draw_(4) == 0 ? all_.now() : all_.later(kProgress);
  all_.at(progress_ns_, [this] { progress(); });
}

void SimProcess::progress() {
  progress_ns_ = 0;
  if (group_ == nullptr) return;
  progressing_ = true;
  const std::int64_t again = group_->progress();
  progressing_ = false;
  awake();
  if (again == 0 || progress_ns_ != 0) return;
  progress_ns_ = again;
  all_.at(again, [this] { progress(); });
}

void SimProcess::heard(const Notice& notice) {
  if (directory_ != nullptr && !all_.mpi_->dead(number_)) directory_->heard(notice);
  awake();
}

void SimProcess::died(const std::string& why) {
  if (directory_ != nullptr) directory_->killed(why);
  awake();
}

void SimProcess::peer_died(int process, const std::string& why) {
  if (directory_ != nullptr && !all_.mpi_->dead(number_)) directory_->lost(process, why);
  awake();
}

void SimProcess::poison(const std::string& cause) {
  if (group_ != nullptr) group_->poison(cause);
}

bool SimProcess::go_on() { return all_.go_on(); }

bool SimProcess::pause() {
  if (all_.draw_(4) != 0) return true;
  RankContext& mine = RankContext::current();
  Parker& parker = mine.parker();
  try {
    parker.park(1);
    RankContext::exchange(&mine);
    parker.unpark();  // a wake-up during the park must not be lost: poll again
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace coshard
