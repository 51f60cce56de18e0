// The folder of a training's checkpoints: one holder, what is kept, what is removed.
#include "dtensor/checkpoint/step_folders.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/dtensor/checkpoint/stored_files.h"

namespace coshard::testing {
namespace {

namespace fs = std::filesystem;
using Steps = std::vector<std::int64_t>;

TEST(StepFolders, S20HaveOneHolder) {
  const ScratchFolder scratch;
  const std::string folder = scratch.path("a/b");
  {
    const StepFolders held(folder);
    const std::string refused = message_of([&] { StepFolders again(folder); });
    EXPECT_CONTAINS(refused, str_cat("process ", ::getpid(), " on host "));
    EXPECT_TRUE(StepFolders::sees_mark(folder, held.mark()));
  }
  const StepFolders after(folder);
  scratch.write("file", "mine");
  EXPECT_CONTAINS(message_of([&] { StepFolders no(scratch.path("file")); }), "no folder");
}

TEST(StepFolders, AreNoCheckpointAndHaveNoFiles) {
  const ScratchFolder scratch;
  scratch.write("a/step-7/training/coshard.json", "{}");
  scratch.write("b/training/coshard.json", "{}");
  scratch.write("c/step-7", "");
  const auto refused = [&](const char* folder) {
    return message_of([&] { StepFolders no(scratch.path(folder)); });
  };
  EXPECT_CONTAINS(refused("a/step-7"), str_cat("give ", scratch.path("a")));
  EXPECT_CONTAINS(refused("b"), "give another folder");
  EXPECT_CONTAINS(refused("c"), "c/step-7: is no folder");
  const StepFolders taken(scratch.path("a"));
}

TEST(StepFolders, KeepTheNewest) {
  const ScratchFolder scratch;
  for (const char* name : {"step-9/x", "step-10/x", "step-100/x", "step-0/x"})
    scratch.write(name, "");
  for (const char* name : {"step-/x", "step-1x/x", "other/x", "step--3/x"}) scratch.write(name, "");
  const std::string folder = scratch.path("");
  EXPECT_EQ(StepFolders::steps_in(folder), (Steps{0, 9, 10, 100}));
  const StepFolders steps(folder);
  steps.keep_newest(5);
  EXPECT_EQ(StepFolders::steps_in(folder), (Steps{0, 9, 10, 100}));
  steps.keep_newest(2);
  EXPECT_EQ(StepFolders::steps_in(folder), (Steps{10, 100}));
  for (const char* name : {"step-", "step-1x", "other", "step--3"})
    EXPECT_TRUE(fs::exists(scratch.path(name))) << name;
}

TEST(StepFolders, S18LoseWhatSavesThatDiedHaveLeft) {  // S18
  const ScratchFolder scratch;
  for (const char* name : {"step-3/x", "step-4.part/x/y", "step-2.old/x"}) scratch.write(name, "");
  for (const char* name : {"mine.part/x", "mine.old/x", "step-x.part/x"}) scratch.write(name, "");
  const StepFolders steps(scratch.path(""));
  EXPECT_TRUE(fs::exists(scratch.path("step-3/x")));
  EXPECT_FALSE(fs::exists(scratch.path("step-4.part")));
  EXPECT_FALSE(fs::exists(scratch.path("step-2.old")));
  for (const char* name : {"mine.part", "mine.old", "step-x.part"})
    EXPECT_TRUE(fs::exists(scratch.path(name))) << name;
}

TEST(StepFolders, RemoveWhatCouldNotBeRemovedBefore) {
  const ScratchFolder scratch;
  for (const char* name : {"step-9/x", "step-10/x"}) scratch.write(name, "");
  const StepFolders steps(scratch.path(""));
  scratch.write("step-3.old/x", "");
  steps.keep_newest(2);
  EXPECT_FALSE(fs::exists(scratch.path("step-3.old")));
  EXPECT_EQ(StepFolders::steps_in(scratch.path("")), (Steps{9, 10}));
}

}  // namespace
}  // namespace coshard::testing
