// A save in the background: old values reach the file though new ones are written at once, and a
// program that does not wait for it is wrong.
#include "dtensor/checkpoint/save_in_progress.h"

#include <coshard/dtensor/checkpoint/async_save.h>
#include <filesystem>

#include <coshard/dtensor/tape/tape.h>
#include <coshard/runtime/launch/simulate.h>
#include "tests/dtensor/checkpoint/saved_states.h"
#include "tests/support/seeds.h"

namespace coshard::testing {
namespace {

// Overwrites all of it as soon as async_save resumes.
Task<void> save_and_overwrite(World& world, const Meshed& place, std::string folder) {
  const DeviceMesh mesh = mesh_of(world, place);
  const State state = state_of(world, mesh, place.layout, 1);
  Task<Saving> begun = async_save(state, folder);
  Saving saving = co_await std::move(begun);
  {
    const NoGradGuard off;
    for (const NamedState& entry : state)
      if (entry.name != "flags") fill_(entry.tensor, 77);
  }
  co_await saving;
  EXPECT_TRUE(std::filesystem::exists(folder + "/model.safetensors"));
}

TEST(AsyncSave, S40HasTheValuesOfWhenItWasCalled) {
  const ScratchFolder scratch;
  on_ranks(1, [&](World& world) { return save_it(world, kPlacements[0], scratch.path("want")); });
  const std::string want = bytes_of(scratch.path("want/model.safetensors"));
  for (std::size_t i = 0; i < kPlacements.size(); ++i) {
    if (kPlacements[i].layout.has_partial()) continue;
    const std::string folder = scratch.path(std::to_string(i));
    on_ranks(ranks_of(kPlacements[i]),
             [&](World& world) { return save_and_overwrite(world, kPlacements[i], folder); });
    EXPECT_TRUE(bytes_of(folder + "/model.safetensors") == want) << kPlacements[i].layout;
  }
}

TEST(AsyncSave, S40InAnyOrderOfTheSimulator) {
  const ScratchFolder scratch;
  on_ranks(1, [&](World& world) { return save_it(world, kPlacements[0], scratch.path("want")); });
  const std::string want = bytes_of(scratch.path("want/model.safetensors"));
  const std::uint64_t orders = testing::number_of("--seeds", "COSHARD_SEEDS", 60);
  for (std::uint64_t seed = 0; seed < orders; ++seed) {
    WorldOptions options;
    options.ranks = 4;
    const std::string folder = scratch.path(std::to_string(seed));
    const Program program = [&](World& world) {
      return save_and_overwrite(world, kPlacements[8], folder);
    };
    simulate(options, program, seed);
    EXPECT_TRUE(bytes_of(folder + "/model.safetensors") == want) << seed;
    std::filesystem::remove_all(folder);
  }
}

TEST(AsyncSave, AProgramThatDoesNotWaitForItFails) {
  const ScratchFolder scratch;
  const std::string text = message_of([&] {
    on_ranks(2, [&](World& world) -> Task<void> {
      State state;
      state.add("x", counting(world, {3}));
      Task<Saving> begun = async_save(state, scratch.path("lost"));
      const Saving saving = co_await std::move(begun);
    });
  });
  EXPECT_CONTAINS(text, "was being saved");
  EXPECT_FALSE(std::filesystem::exists(scratch.path("lost")));
  EXPECT_FALSE(std::filesystem::exists(scratch.path("lost.part")));
}

TEST(AsyncSave, S44ALaterSaveDoesNotHideOneThatIsLost) {
  const ScratchFolder scratch;
  const std::string text = message_of([&] {
    on_ranks(2, [&](World& world) -> Task<void> {
      State state;
      state.add("x", counting(world, {3}));
      {
        Task<Saving> begun = async_save(state, scratch.path("lost"));
        const Saving saving = co_await std::move(begun);
      }
      Task<void> saved = save(state, scratch.path("there"));
      co_await std::move(saved);
    });
  });
  EXPECT_CONTAINS(text, "lost' was being saved");
  EXPECT_TRUE(std::filesystem::exists(scratch.path("there")));
}

TEST(SaveInProgress, IsPolledToItsEnd) {
  const ScratchFolder scratch;
  on_ranks(3, [&](World& world) -> Task<void> {
    State state;
    state.add("x", counting(world, {3}));
    TrainingFiles beside;
    beside.step = 5;
    bool then = false;
    SavingHow how;
    how.then = [&then] { then = true; };
    Task<std::unique_ptr<SaveInProgress>> begun =
        SaveInProgress::begin(state, scratch.path("m"), {}, beside, how);
    const std::unique_ptr<SaveInProgress> saving = co_await std::move(begun);
    bool done = false;
    while (!done) {
      Task<bool> polled = saving->poll();
      done = co_await std::move(polled);
    }
    EXPECT_TRUE(std::filesystem::exists(scratch.path("m/training/coshard.json")));
    EXPECT_EQ(then, world.rank() == 0);
  });
}

}  // namespace
}  // namespace coshard::testing
