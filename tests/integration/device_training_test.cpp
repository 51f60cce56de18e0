// Training on a device gives the losses of the cpu.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/integration/training.h"

namespace coshard::testing {
namespace {

void expect_losses_of_the_cpu(const std::string& dtype, double tolerance) {
  const TextFile text;
  train::Options options = small_options(text);
  options.steps = 20;
  options.dtype_name = dtype;
  for (const int ranks : {1, 2}) {
    for (const char* plan : {"tp", "tp-sp"}) {
      if (ranks == 1 && plan == std::string("tp-sp")) continue;
      options.ranks = ranks;
      options.plan = plan;
      WorldOptions cpu = world_of(options);
      cpu.device = DeviceKind::Cpu;
      cpu.communicator = "local";
      const std::vector<double> want = run_training(options, cpu).loss;
      const std::vector<double> got = run_training(options).loss;
      ASSERT_EQ(got.size(), want.size());
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], want[i], tolerance * want[i])
            << dtype << " " << plan << " on " << ranks << " ranks, step " << i;
    }
  }
}

TEST(DeviceTraining, TwentyStepsInF32GiveTheLossesOfTheCpu) {
  expect_losses_of_the_cpu("f32", 1e-4);
}

TEST(DeviceTraining, TwentyStepsInF64GiveTheLossesOfTheCpu) {
  expect_losses_of_the_cpu("f64", 1e-9);
}

TEST(DeviceTraining, TwentyStepsInBf16StayNearTheCpu) { expect_losses_of_the_cpu("bf16", 3e-2); }

}  // namespace
}  // namespace coshard::testing
