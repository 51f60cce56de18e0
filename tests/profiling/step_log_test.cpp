// The progress line: what it says, how wide it is, and what a log gets instead; the figures.
#include "profiling/step_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include <coshard/dtensor/distribute/distribute.h>
#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include "tests/support/ranks.h"

namespace coshard::testing {
namespace {

TEST(Progress, ALineIsAsLongAsTheTerminalLets) {
  const auto line = [](int columns) {
    return progress_line(50, 1200, 2.34567, 5340, 0.4, 83, columns);
  };
  EXPECT_EQ(line(200),
            "step   50/1200  loss 2.3457  5340 tokens/s  40 % of communication hidden  1:23 left");
  EXPECT_EQ(line(70), "step   50/1200  loss 2.3457  5340 tokens/s  40 % hidden  1:23 left");
  EXPECT_EQ(line(40), "step   50/1200  loss 2.3457  1:23 left");
  for (int columns = 0; columns < 100; ++columns)
    EXPECT_LE(line(columns).size(), static_cast<std::size_t>(columns));
}

TEST(Progress, WithoutCommunicationNothingIsSaidOfIt) {
  EXPECT_EQ(progress_line(1, 9, 1, 10, -1, 0, 200),
            "step 1/9  loss 1.0000  10 tokens/s  0:00 left");
}

// What a Progress prints to a log for `steps` steps.
std::string logged(int steps, const Reading& early, const Reading& late, int turn) {
  ::testing::internal::CaptureStdout();
  Progress progress(steps, 100, 100);
  for (int step = 1; step <= steps; ++step)
    progress.step(step, 2, step <= turn ? early : late, step == steps);
  return ::testing::internal::GetCapturedStdout();
}

TEST(Progress, AllFiguresAreThoseOfTheRecentSteps) {
  const Reading exposed{10, 1'000'000, 1'000'000}, hidden{5, 1'000'000, 0};
  const std::string log = logged(300, exposed, hidden, 200);
  EXPECT_NE(log.find("step 200/300  loss 2.0000  10000 tokens/s  0 % of communication hidden"),
            std::string::npos)
      << log;
  EXPECT_NE(log.find("step 300/300  loss 2.0000  20000 tokens/s  100 % of communication hidden"),
            std::string::npos)
      << log;
}

TEST(Progress, ALogGetsALineNowAndThen) {
  const std::string log = logged(250, {}, {}, 0);
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 4) << log;  // 1, 100, 200, 250
  EXPECT_EQ(log.find_first_of("\r\033"), std::string::npos) << log;
}

TEST(StepFigures, NameTheFirstLossThatIsNotFinite) {
  StepFigures figures;
  figures.first = 4;
  figures.loss = {2, 3};
  EXPECT_EQ(figures.bad_step(), 0);
  const double inf = std::numeric_limits<double>::infinity();
  for (const auto& [bad, said] : {std::pair{std::nan(""), "nan"}, {inf, "inf"}, {-inf, "-inf"}}) {
    figures.loss = {2, bad, 3, std::nan("")};
    EXPECT_EQ(figures.bad_step(), 6);
    EXPECT_EQ(figures.bad_loss(), std::string("the loss is ") + said);
  }
}

TEST(StepFigures, AreThoseOfTheStepsThatHaveSettled) {
  StepFigures figures;
  EXPECT_EQ(to_json(figures, 5, 100)["tokens_per_s"], 0);
  figures.step_ms = {9};
  EXPECT_EQ(figures.settled_ms().median, 9);
  figures.step_ms = {100, 50, 1, 2, 4};
  const Json json = to_json(figures, 5, 100);
  EXPECT_EQ(json["step_ms"], 2);
  EXPECT_EQ(json["step_ms_min"], 1);
  EXPECT_EQ(json["step_ms_max"], 4);
  EXPECT_EQ(json["tokens_per_s"], 50'000);
  EXPECT_TRUE(json["gemm_share"].is_null() && json["hidden_share"].is_null());
  std::ostringstream out;
  print_steps(out, figures, 100);
  EXPECT_EQ(out.str(), "5 steps, median 2.0 ms (1.0 to 4.0): 50000 tokens/s\n");
}

// What rank 0 gets of steps 2 to 6, two of which are traced; the last one has this loss.
StepFigures logged_steps(double last_loss) {
  StepFigures figures;
  const Program program = [&](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    StepLog log(world, {.first = 1, .steps = 6, .log_every = 100, .tokens = 8, .trace_steps = 2},
                figures);
    bool finite = true;
    for (int step = 1; step < 6; ++step) {
      log.before_step(step);
      const DTensor x = ones(mesh, Shard(0), Shape{8});
      const DTensor whole = co_await x.redistribute(Replicate());
      const Tensor loss = full(world.device(), Shape{}, step == 5 ? last_loss : step);
      finite = log.after_step(step, loss, step == 5);
    }
    EXPECT_EQ(finite, std::isfinite(last_loss));
    co_await log.gather();
  };
  ::testing::internal::CaptureStdout();
  on_ranks(2, program);
  (void)::testing::internal::GetCapturedStdout();
  return figures;
}

TEST(StepLog, GathersLossesTablesAndTheTracedSteps) {
  const StepFigures figures = logged_steps(5);
  EXPECT_EQ(figures.loss, (std::vector<double>{1, 2, 3, 4, 5}));
  EXPECT_EQ(figures.step_ms.size(), 5U);
  ASSERT_EQ(figures.tables.size(), 2U);
  for (const CommSummary& table : figures.tables)
    EXPECT_EQ(table.total().count, 3);  // of settled steps
  ASSERT_EQ(figures.traces.size(), 2U);
  EXPECT_EQ(figures.dropped(), 0U);
  const Json json = to_json(figures, 6, 8);
  ASSERT_EQ(json["communication"]["rows"].size(), 1U);
  EXPECT_EQ(json["communication"]["rows"][0]["per_step"], 1);
}

TEST(StepLog, SaysThatALossIsNotFinite) { EXPECT_EQ(logged_steps(std::nan("")).bad_step(), 6); }

}  // namespace
}  // namespace coshard::testing
