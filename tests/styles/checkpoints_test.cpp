// Checkpoints: saved every so many steps, resumed to the bit, refused where steps would be lost.
#include <coshard/styles/checkpoints.h>

#include <filesystem>
#include <mutex>

#include "dtensor/checkpoint/step_folders.h"
#include "tests/styles/cut_models.h"

namespace coshard::testing {
namespace {

using Steps = std::vector<std::int64_t>;

// Trains from where the folder stands to step `end`; a checkpoint every 2 steps.
Task<Losses> train_to(World& world, Cut cut, std::string folder, std::int64_t end) {
  Task<std::shared_ptr<nn::CausalLM>> making = made(world, cut, end == 5 ? 1 : 2, DType::F64);
  const auto model = co_await std::move(making);
  AdamW optimizer(model->parameters(), {.lr = 0.01});
  std::int64_t position = 0;
  Checkpoints checkpoints(*model, folder, {.every = 2, .keep = 2});
  checkpoints.add("optimizer", optimizer).add("position", position);
  Task<std::int64_t> resumed = checkpoints.resume();
  std::int64_t step = co_await std::move(resumed);
  EXPECT_EQ(position, 10 * step);
  Losses losses;
  while (step < end) {
    Task<Losses> one =
        trained(world, *model, optimizer, static_cast<int>(step), static_cast<int>(step) + 1);
    const Losses loss = co_await std::move(one);
    losses.push_back(loss[0]);
    position = 10 * ++step;
    Task<void> after = checkpoints.after(step);
    co_await std::move(after);
  }
  Task<void> finished = checkpoints.finish();
  co_await std::move(finished);
  co_return losses;
}

TEST(Checkpoints, S33ResumeToTheBit) {
  for (const Cutting& cutting : kCuttings) {
    if (!runs_here(cutting)) continue;
    const ScratchFolder scratch;
    std::mutex mutex;
    Losses whole, first, second;  // equal on all ranks
    const auto run = [&](Losses& losses, const char* folder, std::int64_t end) {
      on_ranks(cutting.ranks, [&](World& world) -> Task<void> {
        Task<Losses> training = train_to(world, cutting.cut, scratch.path(folder), end);
        Losses got = co_await std::move(training);
        const std::lock_guard lock(mutex);
        losses = std::move(got);
      });
    };
    run(first, "a", 5);
    EXPECT_EQ(StepFolders::steps_in(scratch.path("a")), (Steps{2, 4}));
    run(second, "a", 9);
    run(whole, "b", 5);
    EXPECT_EQ(whole, first);
    EXPECT_EQ(StepFolders::steps_in(scratch.path("a")), (Steps{6, 8}));
    ASSERT_EQ(second.size(), 5U);
    EXPECT_EQ(second[0], whole[4]);  // step 5 again, after step 4 was read
  }
}

TEST(Checkpoints, LoseNoStepThatIsThere) {
  const ScratchFolder scratch;
  on_ranks(2, [&](World& world) -> Task<void> {
    Mlp mlp(world);
    Checkpoints asked(mlp, scratch.path("x"));
    Task<void> none = asked.after(3);  // every is 0
    co_await std::move(none);
    EXPECT_FALSE(std::filesystem::exists(scratch.path("x")));
    {
      Checkpoints first(mlp, scratch.path("a/"));
      Task<void> saved = first.save(3);
      co_await std::move(saved);
      Task<void> same = first.save(3);
      co_await std::move(same);
      Task<std::string> back = refusal(first.save(2));
      const std::string back_text = co_await std::move(back);
      EXPECT_CONTAINS(back_text, "step 2 does not follow step 3");
      Checkpoints second(mlp, scratch.path("a"));
      Task<std::string> held = refusal(second.save(4));
      const std::string held_text = co_await std::move(held);
      EXPECT_CONTAINS(held_text, "process ");
      EXPECT_CONTAINS(held_text, " saves there");
    }
    Checkpoints third(mlp, scratch.path("a"));
    Task<std::string> over = refusal(third.save(3));
    const std::string over_text = co_await std::move(over);
    EXPECT_CONTAINS(over_text, "resume()");
    Task<std::int64_t> resumed = third.resume();
    EXPECT_EQ(co_await std::move(resumed), 3);
    Task<void> saved = third.save(4);
    co_await std::move(saved);
  });
  EXPECT_EQ(StepFolders::steps_in(scratch.path("a")), (Steps{3, 4}));
}

TEST(Checkpoints, S44FinishMakesTheSaveOnItsWayDurable) {
  const ScratchFolder scratch;
  on_ranks(2, [&](World& world) -> Task<void> {
    Mlp mlp(world);
    Checkpoints made(mlp, scratch.path("a"), {.every = 1});
    for (std::int64_t step = 1; step <= 3; ++step) {
      Task<void> begun = made.after(step);
      co_await std::move(begun);
      Task<void> finished = made.finish();
      co_await std::move(finished);
      EXPECT_TRUE(std::filesystem::exists(made.path(step) + "/training/coshard.json"));
      EXPECT_FALSE(std::filesystem::exists(made.path(step) + ".part"));
    }
  });
  EXPECT_EQ(StepFolders::steps_in(scratch.path("a")), (Steps{1, 2, 3}));
}

TEST(Checkpoints, S44AnErrorNamesTheSaveThatItInterruptsAndTheOneBeforeIsTheNewest) {
  const ScratchFolder scratch;
  const auto step_4_fails = [&](World& world) -> Task<void> {
    Mlp mlp(world);
    Checkpoints made(mlp, scratch.path("a"), {.every = 1});
    for (std::int64_t step = 1; step <= 3; ++step) {
      Task<void> begun = made.after(step);
      co_await std::move(begun);
    }
    fail(ErrorKind::DeviceFailed, "step 4 fails");
  };
  std::string text;
  try {
    on_ranks(2, step_4_fails);
  } catch (const Error& error) {
    text = error.what();
  }
  EXPECT_CONTAINS(text, "step 4 fails");
  const std::string lost = str_cat("'", scratch.path("a/step-3"), "' was being saved");
  EXPECT_CONTAINS(text, lost);
  EXPECT_EQ(text.find(lost), text.rfind(lost)) << text;
  EXPECT_EQ(StepFolders::steps_in(scratch.path("a")), (Steps{1, 2}));
  EXPECT_FALSE(std::filesystem::exists(scratch.path("a/step-3.part")));
  on_ranks(2, [&](World& world) -> Task<void> {
    Mlp mlp(world);
    Checkpoints again(mlp, scratch.path("a"));
    Task<std::int64_t> resumed = again.resume();
    EXPECT_EQ(co_await std::move(resumed), 2);
  });
}

TEST(Checkpoints, RefuseAFolderThatOnlyLooksLikeAStep) {
  const ScratchFolder scratch;
  scratch.write("a/step-007/model.safetensors", "");
  scratch.write("a/step-best/model.safetensors", "");
  on_ranks(2, [&](World& world) -> Task<void> {
    Mlp mlp(world);
    Checkpoints made(mlp, scratch.path("a"));
    Task<std::string> resuming = refusal(made.resume());
    const std::string text = co_await std::move(resuming);
    EXPECT_CONTAINS(text, "a/step-007: ");
  });
  std::filesystem::remove_all(scratch.path("a/step-007"));
  on_ranks(2, [&](World& world) -> Task<void> {
    Mlp mlp(world);
    Checkpoints made(mlp, scratch.path("a"));
    Task<void> started = made.start();
    co_await std::move(started);
  });
}

TEST(Checkpoints, RefuseACheckpointAsTheirFolder) {
  const ScratchFolder scratch;
  on_ranks(2, [&](World& world) -> Task<void> {
    Mlp mlp(world);
    Checkpoints made(mlp, scratch.path("a"));
    Task<void> saved = made.save(4);
    co_await std::move(saved);
  });
  on_ranks(2, [&](World& world) -> Task<void> {
    Mlp mlp(world);
    for (const char* folder : {"a/step-4", "a/step-4/"}) {
      Checkpoints into(mlp, scratch.path(folder));
      Task<std::string> resuming = refusal(into.resume());
      const std::string text = co_await std::move(resuming);
      EXPECT_CONTAINS(text, str_cat("give ", scratch.path("a")));
    }
  });
  EXPECT_FALSE(std::filesystem::exists(scratch.path("a/step-4/.lock")));
}

TEST(Checkpoints, S19DoNotPassOverADamagedOne) {
  const ScratchFolder scratch;
  on_ranks(2, [&](World& world) -> Task<void> {
    Mlp mlp(world);
    Checkpoints made(mlp, scratch.path("a"));
    for (const std::int64_t step : {2, 4}) {
      Task<void> saved = made.save(step);
      co_await std::move(saved);
    }
  });
  const auto refused = [&] {
    std::string text;
    std::mutex mutex;
    on_ranks(2, [&](World& world) -> Task<void> {
      Mlp mlp(world);
      Checkpoints made(mlp, scratch.path("a"));
      Task<std::string> resuming = refusal(made.resume());
      std::string said = co_await std::move(resuming);
      const std::lock_guard lock(mutex);
      text = std::move(said);
    });
    return text;
  };
  const std::string model = scratch.path("a/step-4/model.safetensors");
  std::filesystem::copy_file(model, scratch.path("whole"));
  std::filesystem::resize_file(model, 4100);
  EXPECT_CONTAINS(refused(), "step-4/model.safetensors");
  EXPECT_CONTAINS(refused(), "also has step 2");
  std::filesystem::rename(scratch.path("whole"), model);
  std::filesystem::remove_all(scratch.path("a/step-4/training"));
  EXPECT_CONTAINS(refused(), "coshard.json");
  std::filesystem::remove_all(scratch.path("a/step-4"));
  EXPECT_EQ(refused(), "");
}

TEST(Checkpoints, S44ASaveThatFailsIsToldOnceAndTheNextOneIsWritten) {
  const ScratchFolder scratch;
  on_ranks(2, [&](World& world) -> Task<void> {
    Mlp mlp(world);
    Checkpoints made(mlp, scratch.path("a"), {.every = 2});
    Task<void> started = made.start();
    co_await std::move(started);
    Task<void> begun = made.after(2);
    co_await std::move(begun);
    if (world.rank() == 0) std::filesystem::remove_all(scratch.path("a/step-2.part"));
    int failed = 0;
    const auto is_there = [&] { return std::filesystem::exists(made.path(2)); };
    for (std::int64_t step = 3; failed == 0 && !is_there(); step += 2) {  // the disk takes its time
      Task<std::string> told = refusal(made.after(step));
      const std::string text = co_await std::move(told);
      failed += text.empty() ? 0 : 1;
    }
    EXPECT_EQ(failed, 1);
    Task<std::string> quiet = refusal(made.after(3));
    const std::string nothing = co_await std::move(quiet);
    EXPECT_EQ(nothing, "");
    Task<void> saved = made.save(4);
    co_await std::move(saved);
    EXPECT_TRUE(std::filesystem::exists(made.path(4)));
  });
}

TEST(Checkpoints, S21RefuseWhatIsNoFolderBeforeTheFirstStep) {
  const ScratchFolder scratch;
  scratch.write("file", "mine");
  on_ranks(2, [&](World& world) -> Task<void> {
    Mlp mlp(world);
    Checkpoints made(mlp, scratch.path("file"));
    Task<std::string> resuming = refusal(made.resume());
    const std::string text = co_await std::move(resuming);
    EXPECT_CONTAINS(text, "rank 0: ");
    EXPECT_CONTAINS(text, "no folder");
    EXPECT_CONTAINS(error_of([&] { Checkpoints no(mlp, "a", {.every = -1}); }), "every -1");
  });
}

}  // namespace
}  // namespace coshard::testing
