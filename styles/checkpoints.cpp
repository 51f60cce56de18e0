#include <coshard/styles/checkpoints.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <typeinfo>
#include <utility>

#include "dtensor/checkpoint/agreement.h"
#include "dtensor/checkpoint/local_parts.h"
#include "dtensor/checkpoint/manifest.h"
#include "dtensor/checkpoint/save_in_progress.h"
#include "dtensor/checkpoint/step_folders.h"
#include "runtime/coro/user_call.h"
#include "styles/training_parts.h"

namespace coshard {

struct Checkpoints::Inside {
  Inside(Module& model, std::string path, CheckpointsOptions how)
      : parts(model), folder(std::move(path)), options(std::move(how)) {}
  TrainingParts parts;
  std::string folder;
  CheckpointsOptions options;
  bool is_open = false;
  std::shared_ptr<StepFolders> steps;  // rank 0
  std::shared_ptr<BytesPool> pool = std::make_shared<BytesPool>();
  std::unique_ptr<SaveInProgress> saving;
  std::int64_t saved_step = -1;           // of `saving`
  std::int64_t newest = -1, before = -1;  // steps in the folder; -1: none
  bool has_it = false;                    // what is here now follows from `newest`
  LoadReport report;
};

namespace {

World& world_of(const char* who) {
  World* const world = World::current();
  CS_REQUIRE(world != nullptr, who, ": called outside of a rank's program");
  return *world;
}

}  // namespace

Checkpoints::Checkpoints(Module& model, std::string folder, CheckpointsOptions options) {
  CS_REQUIRE(options.every >= 0 && options.keep >= 0 && options.file_bytes > 0,
             "Checkpoints: invalid every ", options.every, ", keep ", options.keep,
             " or file_bytes ", options.file_bytes);
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  inside_ = std::make_unique<Inside>(model, std::move(folder), std::move(options));
}
Checkpoints::~Checkpoints() = default;

Checkpoints& Checkpoints::add(std::string name, Optimizer& optimizer) {
  inside_->parts.add(name, optimizer);
  return *this;
}
Checkpoints& Checkpoints::add(std::string name, State state) {
  inside_->parts.add(name, std::move(state));
  return *this;
}
Checkpoints& Checkpoints::add(std::string name, std::int64_t& value) {
  inside_->parts.add(name, TrainingParts::Value(&value));
  return *this;
}
Checkpoints& Checkpoints::add(std::string name, double& value) {
  inside_->parts.add(name, TrainingParts::Value(&value));
  return *this;
}

std::string Checkpoints::path(std::int64_t step) const {
  return StepFolders::path(inside_->folder, step);
}

const LoadReport& Checkpoints::report() const { return inside_->report; }

// Takes the folder, for as long as this lives.
Task<void> Checkpoints::open() {
  Inside& in = *inside_;
  if (in.is_open) co_return;
  World& world = world_of("Checkpoints");
  const WaitLimit disk(limit_of_disks(world));  // what saves that died have left is removed
  in.steps = nullptr;                           // of a call that failed
  constexpr std::size_t kMark = 512;
  ByteVector told(kMark, std::byte{});
  std::vector<std::int64_t> steps{-1, -1};
  std::exception_ptr failed = failure_of([&] { in.parts.check(); });
  if (world.rank() == 0 && !failed)
    failed = failure_of([&] {
      in.steps = std::make_shared<StepFolders>(in.folder);
      const std::vector<std::int64_t> there = StepFolders::steps_in(in.folder);
      for (std::size_t i = 0; i < std::min(there.size(), steps.size()); ++i)
        steps[i] = there[there.size() - 1 - i];
      const std::string& mark = in.steps->mark();
      std::memcpy(told.data(), mark.data(), std::min(mark.size(), kMark - 1));
    });
  Task<void> taken = agree(world, failed);
  co_await std::move(taken);
  Task<ReceivedBytes> telling = gather_bytes(world, std::move(told), "checkpoints");
  const ReceivedBytes all = co_await std::move(telling);
  const std::string mark(reinterpret_cast<const char*>(all->data()));
  Task<std::vector<std::int64_t>> listing =
      gather_numbers<std::int64_t>(world, std::move(steps), "checkpoints");
  const std::vector<std::int64_t> listed = co_await std::move(listing);
  in.newest = listed[0], in.before = listed[1];
  failed = failure_of([&] {
    CS_REQUIRE(StepFolders::sees_mark(in.folder, mark), in.folder, ": is not the folder of ",
               mark.substr(0, mark.find(", boot")), "; it must be on storage that all share");
  });
  Task<void> seen = agree(world, failed);
  co_await std::move(seen);
  in.is_open = true;
}

Task<void> Checkpoints::start(CallSite site) {
  const UserCall user(site);
  Inside& in = *inside_;
  Task<void> opened = open();
  co_await std::move(opened);
  CS_REQUIRE(in.newest < 0, in.folder, ": has step ", in.newest,
             " already; resume from it, or give another folder");
}

Task<std::int64_t> Checkpoints::resume(LoadOptions options, CallSite site) {
  const UserCall user(site);
  Inside& in = *inside_;
  Task<void> opened = open();
  co_await std::move(opened);
  if (in.newest < 0) co_return 0;
  const std::string folder = path(in.newest);
  try {
    Task<LoadReport> loading = in.parts.load(folder, options, true, in.newest);
    in.report = co_await std::move(loading);
  } catch (const Error& error) {
    if (in.before < 0 || typeid(error) != typeid(Error)) throw;
    fail(error.kind(),
         str_cat(error.message(), " (", in.folder, " also has step ", in.before, ")"));
  }
  in.has_it = true;
  co_return in.newest;
}

// `in_background`: all windows are copied before it resumes.
Task<void> Checkpoints::begin(std::int64_t step, bool in_background) {
  Inside& in = *inside_;
  Task<void> opened = open();
  co_await std::move(opened);
  Task<void> finished = finish();
  co_await std::move(finished);
  if (in.has_it && step == in.newest) co_return;
  std::exception_ptr lost;
  if (in.steps != nullptr) lost = failure_of([&] { in.steps->require_held(); });
  Task<void> held = agree(world_of("Checkpoints"), lost);
  co_await std::move(held);
  CS_REQUIRE(step > in.newest, "Checkpoints: step ", step, " does not follow step ", in.newest,
             ", which ", in.folder, " has; resume() goes on from that, or give another folder");
  SaveOptions options;
  options.file_bytes = in.options.file_bytes;
  TrainingFiles beside;
  beside.files = in.options.files;
  beside.step = step;
  SavingHow how;
  if (in_background) {
    how.windows_waiting = static_cast<std::size_t>(-1);
    how.pool = in.pool;
  }
  if (in.options.keep > 0 && in.steps != nullptr)
    how.then = [steps = in.steps, keep = in.options.keep] { steps->keep_newest(keep); };
  Task<std::unique_ptr<SaveInProgress>> begun =
      in.parts.begin(path(step), options, std::move(beside), std::move(how));
  in.saving = co_await std::move(begun);
  in.saved_step = step;
}

Task<void> Checkpoints::after(std::int64_t step, CallSite site) {
  const UserCall user(site);
  Inside& in = *inside_;
  if (in.options.every > 0 && step % in.options.every == 0) {
    Task<void> begun = begin(step, true);
    co_await std::move(begun);
  } else if (in.saving != nullptr) {
    std::unique_ptr<SaveInProgress> saving = std::move(in.saving);  // given up if it throws
    Task<bool> polled = saving->poll();
    const bool done = co_await std::move(polled);
    if (!done)
      in.saving = std::move(saving);
    else
      in.newest = in.saved_step, in.has_it = true;
  }
}

Task<void> Checkpoints::save(std::int64_t step, CallSite site) {
  const UserCall user(site);
  Task<void> begun = begin(step, false);
  co_await std::move(begun);
  Task<void> finished = finish();
  co_await std::move(finished);
}

Task<void> Checkpoints::finish(CallSite site) {
  const UserCall user(site);
  const std::unique_ptr<SaveInProgress> saving = std::move(inside_->saving);
  if (saving == nullptr) co_return;
  Task<void> finished = saving->finish();
  co_await std::move(finished);
  inside_->newest = inside_->saved_step, inside_->has_it = true;
}

}  // namespace coshard
