// coshard plan explain --module with a file that calibrate() has written.
#include "tools/plan_modules.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <coshard/dtensor/calibration/calibrate.h>
#include <coshard/runtime/error.h>
#include <coshard/runtime/launch/world.h>
#include "dtensor/mesh/calibration.h"
#include "profiling/child_process.h"
#include "tests/support/json.h"

namespace coshard::tools {
namespace {

class MeasuredPlan : public ::testing::Test {
 protected:
  ~MeasuredPlan() override { std::filesystem::remove(options_.calibration); }

  // What the ranks of `mesh` have measured, with links of 1 us, 1 GB/s and of 20 us, 2 GB/s.
  void calibrated(std::vector<int> shape, std::vector<std::string> names) {
    WorldOptions world;
    world.ranks = 4;
    world.threads = 1;
    run_ranks(world, [&](World& w) -> Task<void> {
      CalibrateOptions how;
      how.cache = options_.calibration;
      how.budget = std::chrono::milliseconds(1);
      const DeviceMesh mesh = init_device_mesh(w, shape, names);
      Task<DeviceMesh> measuring = calibrate(mesh, how);
      co_await std::move(measuring);
    });
    std::ostringstream text;
    text << std::ifstream(options_.calibration).rdbuf();
    Calibration measured = Calibration::parse(text.str()).value();
    if (shape[0] > 1) measured.links[0] = {1'000, 1'000, 2'000, 0, 1'000, 0};
    if (shape[1] > 1) measured.links[1] = {20'000, 20'000, 21'000, 0, 2'000, 0};
    std::ofstream(options_.calibration) << measured.text();
  }

  std::string explained(const std::string& mesh) {
    options_.mesh = mesh;
    std::ostringstream out;
    try {
      explain_modules(options_, out);
    } catch (const Error& error) {
      return error.what();
    }
    return out.str();
  }
  std::string first_line(const std::string& mesh) {
    const std::string all = explained(mesh);
    return all.substr(0, all.find('\n'));
  }

  PlanModulesOptions options_{.calibration = coshard::testing::temporary_path("calibration"),
                              .module = "output"};
};

TEST_F(MeasuredPlan, TakesTheLinkOfTheDimensionThatItExplains) {
  calibrated({2, 2}, {"dp", "tp"});
  EXPECT_EQ(first_line("tp=4"),
            "forward on tp=4, link 20 us, 2 GB/s (measured on tp=2), GEMM times as measured");
  EXPECT_EQ(first_line("dp=2"),
            "forward on dp=2, link 1 us, 1 GB/s (measured on dp=2), GEMM times as measured");
  options_.json = true;
  EXPECT_TRUE(coshard::testing::json_holds(
      explained("tp=4"), "assert d['link']['measured_on'] == 'tp=2' and d['link']['us'] == 20, d"));
}

TEST_F(MeasuredPlan, ADimensionThatWasNotMeasuredIsNamed) {
  calibrated({2, 2}, {"dp", "tp"});
  for (const std::string mesh : {"pp=2", "2"})
    EXPECT_EQ(
        explained(mesh),
        options_.calibration + " is of dp=2,tp=2: name one of its dimensions, as in --mesh dp=2");
  options_.links = {"5us,3GB/s"};  // then the file is for products alone
  EXPECT_EQ(first_line("pp=2"), "forward on pp=2, link 5 us, 3 GB/s, GEMM times as measured");
}

TEST_F(MeasuredPlan, RefusesAnotherMachineThanThatOfItsProducts) {
  calibrated({2, 2}, {"dp", "tp"});
  options_.machine = "--threads 4";
  EXPECT_EQ(explained("tp=2"), "--threads 4 beside --calibration " + options_.calibration +
                                   ": the file has GEMM times of its own device and threads");
  options_.dtype = "bf16";  // of which it has none
  options_.threads = 4;
  EXPECT_EQ(
      first_line("tp=2"),
      "forward on tp=2, link 20 us, 2 GB/s (measured on tp=2), GEMM times by a constant rate");
}

TEST_F(MeasuredPlan, OnNcclEachShardTakesALatency) {
  options_.calibration = "";
  options_.links = {"3ms,1GB/s"};
  options_.plan = "tp-sp";
  options_.module = "layers.*.attn.wq";
  options_.json = true;
  const std::string choice = "assert d['modules'][0]['choice'] == ";
  EXPECT_TRUE(coshard::testing::json_holds(explained("tp=4"), choice + "'by shards', d"));
  options_.communicator = "nccl";
  EXPECT_TRUE(coshard::testing::json_holds(explained("tp=4"), choice + "'serial', d"));
  options_.links = {"1us,1GB/s"};
  EXPECT_TRUE(coshard::testing::json_holds(explained("tp=4"), choice + "'by shards', d"));
  options_.module = "layers.*.attn.wo";  // its rows are sent as they are computed
  EXPECT_TRUE(coshard::testing::json_holds(explained("tp=4"), choice + "'by rows', d"));
}

TEST_F(MeasuredPlan, ADimensionOfOneRankHasNoLink) {
  calibrated({4, 1}, {"dp", "tp"});
  EXPECT_EQ(explained("tp=2"),
            options_.calibration + " has no link of tp=1: one rank has none; give --link");
}

}  // namespace
}  // namespace coshard::tools
