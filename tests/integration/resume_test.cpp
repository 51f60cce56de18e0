// examples/train --save and --resume: the same losses and files as without a break, on the same
// ranks to the bit, on others as closely as sums add; what is refused.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "tests/dtensor/checkpoint/stored_files.h"
#include "tests/integration/child.h"
#include "tests/integration/training.h"

namespace coshard::testing {
namespace {

namespace fs = std::filesystem;
using Files = std::map<std::string, std::string>;

Files files_of(const fs::path& folder) {
  Files files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    files[fs::relative(entry.path(), folder).string()] = {std::istreambuf_iterator<char>(in), {}};
  }
  return files;
}

struct Placed {
  const char* plan;
  int ranks;
};
constexpr Placed kRuns[] = {{"tp", 1}, {"tp", 2},   {"tp-sp", 2},
                            {"dp", 2}, {"fsdp", 2}, {"tp-sp", 4}};

train::Options saving(const TextFile& text, const Placed& run, std::string folder) {
  train::Options options = small_options(text);
  options.plan = run.plan;
  options.ranks = run.ranks;
  options.batch = 4;
  options.steps = 8;
  options.warmup = 2;
  options.every = 4;
  options.keep = 5;
  options.save = std::move(folder);
  return options;
}

TEST(Resume, S33GoesOnToTheBit) {
  const TextFile text;
  for (const char* dtype : {"f32", "bf16"})
    for (const Placed& run : kRuns) {
      const ScratchFolder scratch;
      train::Options options = saving(text, run, scratch.path("a"));
      options.dtype_name = dtype;
      const train::Outcome whole = run_training(options);
      ASSERT_EQ(whole.loss.size(), 8U);
      EXPECT_EQ(whole.saved, scratch.path("a/step-8"));
      EXPECT_EQ(whole.stall_ms.size(), 2U);
      const Files files = files_of(scratch.path("a/step-8"));
      fs::remove_all(scratch.path("a/step-8"));
      options.resume = true;
      const train::Outcome rest = run_training(options);
      EXPECT_EQ(rest.first, 4);
      EXPECT_EQ(rest.loss, std::vector<double>(whole.loss.begin() + 4, whole.loss.end()))
          << run.plan << ' ' << run.ranks << ' ' << dtype;
      EXPECT_TRUE(files_of(scratch.path("a/step-8")) == files) << run.plan << ' ' << run.ranks;
      const train::Outcome none = run_training(options);
      EXPECT_TRUE(none.loss.empty() && none.first == 8 && none.saved.empty());
    }
}

TEST(Resume, S34GoesOnInAnyOtherPlan) {
  const TextFile text;
  const ScratchFolder scratch;
  const train::Outcome whole = run_training(saving(text, {"tp", 2}, scratch.path("a")));
  fs::remove_all(scratch.path("a/step-8"));
  for (const Placed& run : kRuns) {
    fs::copy(scratch.path("a"), scratch.path("b"), fs::copy_options::recursive);
    train::Options options = saving(text, run, scratch.path("b"));
    options.resume = true;
    const train::Outcome rest = run_training(options);
    ASSERT_EQ(rest.loss.size(), 4U);
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_NEAR(rest.loss[i], whole.loss[4 + i], 1e-5) << run.plan << ' ' << run.ranks;
    fs::remove_all(scratch.path("b"));
  }
}

TEST(Resume, S1TheFilesDoNotDependOnPlanAndRanks) {
  const TextFile text;
  const ScratchFolder scratch;
  Files first;
  for (const Placed& run : {Placed{"tp", 1}, Placed{"tp", 2}, Placed{"tp-sp", 2}, Placed{"dp", 4},
                            Placed{"fsdp", 2}, Placed{"fsdp", 4}, Placed{"tp", 4}}) {
    train::Options options = saving(text, run, scratch.path("a"));
    options.steps = 0;
    (void)run_training(options);
    const Files files = files_of(scratch.path("a/step-0"));
    if (first.empty()) first = files;
    EXPECT_GE(files.size(), 4U);
    EXPECT_TRUE(files == first) << run.plan << ' ' << run.ranks;
    fs::remove_all(scratch.path("a"));
  }
}

class SavingProgram : public ::testing::Test {
 protected:
  std::vector<std::string> command(const std::vector<std::string>& more) const {
    std::vector<std::string> words{TRAIN_PROGRAM,
                                   "--text",
                                   text_.path(),
                                   "--ranks",
                                   "2",
                                   "--layers",
                                   "1",
                                   "--dim",
                                   "32",
                                   "--heads",
                                   "4",
                                   "--ffn",
                                   "50",
                                   "--seq",
                                   "30",
                                   "--log-every",
                                   "1",
                                   "--save",
                                   scratch_.path("run"),
                                   "--eval-blocks",
                                   "0",
                                   "--sample",
                                   "0"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  void expect_refused(const std::vector<std::string>& more, const std::string& part) const {
    Child train(command(more));
    EXPECT_NE(train.end(), 0) << train.out();
    EXPECT_CONTAINS(train.err(), part);
    EXPECT_EQ(train.out().find("step "), std::string::npos) << train.out();
  }
  TextFile text_;
  ScratchFolder scratch_;
};

TEST_F(SavingProgram, S22ASignalSavesAndResumeGoesOn) {
  Child first(command({"--steps", "100000000"}));
  ASSERT_TRUE(first.says("step         3/100000000")) << first.out() << first.err();
  first.send(SIGTERM);
  EXPECT_EQ(first.end(), 0) << first.err();
  EXPECT_CONTAINS(first.out(), "saved " + scratch_.path("run/step-"));
  int step = 0;
  for (const auto& entry : fs::directory_iterator(scratch_.path("run")))
    if (const std::string name = entry.path().filename().string(); name != ".lock")
      step = std::stoi(name.substr(5));
  EXPECT_GE(step, 3);
  Child second(command({"--resume", "--steps", std::to_string(step + 2)}));
  EXPECT_EQ(second.end(), 0) << second.err();
  EXPECT_CONTAINS(second.out(), str_cat("saved ", scratch_.path("run/step-"), step + 2));
  EXPECT_CONTAINS(second.out(), "\n2 steps, ");
  EXPECT_CONTAINS(second.out(), str_cat("goes on from ", scratch_.path("run/step-"), step, "\n"));
}

TEST_F(SavingProgram, ResumeSaysWhatItGoesOnFrom) {
  Child first(command({"--resume", "--steps", "2"}));
  EXPECT_EQ(first.end(), 0) << first.err();
  EXPECT_CONTAINS(first.out(), "has no checkpoint: ");
  const std::string trace = scratch_.path("trace.json");
  Child done(command({"--resume", "--steps", "2", "--trace", trace}));
  EXPECT_EQ(done.end(), 0) << done.err();
  EXPECT_CONTAINS(done.out(), "run/step-2, which has all 2 steps: ");
  EXPECT_CONTAINS(done.out(), "no step was traced");
  EXPECT_FALSE(fs::exists(trace));
  Child more(command({"--resume", "--steps", "4", "--lr", "1e-4", "--trace", trace}));
  EXPECT_EQ(more.end(), 0) << more.err();
  EXPECT_CONTAINS(more.out(), ", of 1 step (");
}

TEST_F(SavingProgram, RefusesBeforeTheFirstStep) {
  Child made(command({"--steps", "1"}));
  EXPECT_EQ(made.end(), 0) << made.err();
  expect_refused({"--steps", "3"}, "has step 1 already; ");
  expect_refused({"--steps", "3", "--resume", "--seed", "7"}, "was trained with --seed 1");
  expect_refused({"--steps", "3", "--resume", "--dim", "64"}, "has shape");
  expect_refused({"--steps", "3", "--resume", "--batch", "8"}, "was trained with --batch 4");
  expect_refused({"--steps", "3", "--resume", "--seq", "20"}, "was trained with --seq 30");
  const TextFile other_text(90'000);
  expect_refused({"--steps", "3", "--resume", "--text", other_text.path()}, "another text");
  const std::string step = scratch_.path("run/step-1");
  expect_refused({"--save", step, "--resume"}, "give " + scratch_.path("run"));
  expect_refused({"--save", step}, "give " + scratch_.path("run"));
  EXPECT_FALSE(fs::exists(step + "/.lock"));
  Child other({TRAIN_PROGRAM, "--text", text_.path(), "--every", "3"});
  EXPECT_EQ(other.end(), 2);
  EXPECT_CONTAINS(other.err(), "--every needs --save");
}

}  // namespace
}  // namespace coshard::testing
