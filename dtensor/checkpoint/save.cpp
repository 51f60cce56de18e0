#include <coshard/dtensor/checkpoint/save.h>

#include <utility>

#include <coshard/dtensor/checkpoint/async_save.h>
#include "dtensor/checkpoint/save_in_progress.h"
#include "dtensor/checkpoint/training_files.h"
#include "runtime/coro/user_call.h"

namespace coshard {

Task<void> save(State state, std::string folder, SaveOptions options, CallSite site) {
  const UserCall user(site);
  Task<void> saved = save_with(std::move(state), std::move(folder), options, {});
  co_await std::move(saved);
}

Task<void> save_with(State state, std::string folder, SaveOptions options, TrainingFiles beside) {
  Task<std::unique_ptr<SaveInProgress>> begun =
      SaveInProgress::begin(std::move(state), std::move(folder), options, std::move(beside), {});
  const std::unique_ptr<SaveInProgress> saving = co_await std::move(begun);
  Task<void> finished = saving->finish();
  co_await std::move(finished);
}

Saving::Saving(std::unique_ptr<SaveInProgress> save) : save_(std::move(save)) {}
Saving::Saving(Saving&&) noexcept = default;
Saving& Saving::operator=(Saving&&) noexcept = default;
Saving::~Saving() = default;

Task<void> Saving::finish(CallSite site) {
  const UserCall user(site);
  const std::unique_ptr<SaveInProgress> saving = std::move(save_);
  CS_REQUIRE(saving != nullptr, "Saving: it was awaited before, or moved");
  Task<void> finished = saving->finish();
  co_await std::move(finished);
}

Task<Saving> async_save(State state, std::string folder, SaveOptions options, CallSite site) {
  const UserCall user(site);
  Task<Saving> begun = async_save_with(std::move(state), std::move(folder), options, {});
  co_return co_await std::move(begun);
}

Task<Saving> async_save_with(State state, std::string folder, SaveOptions options,
                             TrainingFiles beside) {
  SavingHow how;
  how.windows_waiting = static_cast<std::size_t>(-1);
  Task<std::unique_ptr<SaveInProgress>> begun = SaveInProgress::begin(
      std::move(state), std::move(folder), options, std::move(beside), std::move(how));
  co_return Saving(co_await std::move(begun));
}

}  // namespace coshard
