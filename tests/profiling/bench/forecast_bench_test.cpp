// The forecast of a training step beside the measured one: that all are there and of the right size.
// How close they are is for the bench to say.
#include <gtest/gtest.h>

#include "profiling/bench/benches.h"

namespace coshard::bench {
namespace {

double value_of(const Report& report, const std::string& name) {
  const Result* found = report.find(name);
  if (found == nullptr) ADD_FAILURE() << "no " << name;
  return found == nullptr ? 0 : found->value;
}

Report tiny(const std::string& link) {
  ForecastOptions options;
  options.step.dim = 32, options.step.heads = 2, options.step.layers = 1, options.step.ffn = 48;
  options.step.seq = 16, options.step.batch = 4, options.step.rounds = 1;
  options.link = link;
  return bench_forecast(options);
}

TEST(ForecastBench, AStepOnASlowLinkTakesWhatTheLinkDoes) {
  const Report report = tiny("20ms,1GB/s");
  const auto forecast = [&report](const char* plan) {
    return value_of(report, std::string(plan) + "_forecast");
  };
  // Of one layer: three collectives in forward, three in backward; with sequence parallelism no
  // fewer; of replicas at least one.
  EXPECT_GE(forecast("tp_off"), 6 * 20);
  EXPECT_GE(forecast("tp_sp_off"), 6 * 20);
  EXPECT_GE(forecast("dp_off"), 20);
  for (const char* plan : {"tp_off", "tp_sp_off", "dp_off"}) {
    // A link that is emulated never takes less, and a loaded machine may take any longer.
    EXPECT_GE(value_of(report, std::string(plan) + "_measured") * 1.5, forecast(plan)) << plan;
    EXPECT_TRUE(report.find(std::string(plan) + "_error")->ok().has_value()) << plan;
  }
}

TEST(ForecastBench, AFasterLinkIsForecastFaster) {
  EXPECT_GT(value_of(tiny("5ms,1GB/s"), "tp_off_forecast"),
            value_of(tiny("1us,100GB/s"), "tp_off_forecast"));
}

}  // namespace
}  // namespace coshard::bench
