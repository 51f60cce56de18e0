// Times of a forecast against each other, and against the report of its trace.
#include "tools/simulate/ledger.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "profiling/overlap/overlap_report.h"
#include "tests/support/json.h"
#include "tools/simulate/forecast.h"

namespace coshard::tools {
namespace {

struct Setting {
  const char *mesh, *link;
  std::int64_t batch;
  int weave;
  Overlap overlap;
  bool sequence_parallel, recompute;
};

std::ostream& operator<<(std::ostream& out, const Setting& s) {
  return out << s.mesh << " over '" << s.link << "', batch " << s.batch << ", weave " << s.weave
             << ", overlap " << static_cast<int>(s.overlap) << (s.sequence_parallel ? ", sp" : "")
             << (s.recompute ? ", recompute" : "");
}

class Times : public ::testing::TestWithParam<Setting> {};

Forecast forecast_of(const Setting& setting) {
  LlamaRun run;
  nn::CausalLMConfig& config = run.config;
  config.vocab_size = 4096, config.hidden_size = 1024, config.intermediate_size = 2816;
  config.num_hidden_layers = 2, config.num_attention_heads = 16, config.num_key_value_heads = 8;
  config.dtype = DType::BF16;
  run.mesh = parse_mesh_dims(setting.mesh);
  run.links = links_of(run.mesh, given_links(run.mesh, setting.link, "h100"), 8);
  run.batch = setting.batch, run.seq = 1024, run.weave = setting.weave;
  run.overlap = setting.overlap;
  run.sequence_parallel = setting.sequence_parallel, run.recompute = setting.recompute;
  return forecast_of(run, processor_of(gpu_figures("h100")), true);
}

overlap::RankOverlap report_of(const std::vector<ChromeTrace>& trace) {
  const std::string name = coshard::testing::temporary_path("times.json");
  std::ofstream file(name);
  write_chrome_trace(file, trace);
  file.close();
  const auto report = overlap::overlap_of(overlap::read_trace(name));
  std::filesystem::remove(name);
  return report.ranks.at(0);
}

TEST_P(Times, ExposedIsInFlightWhichIsInTheStepAsTheTraceSays) {
  const Forecast f = forecast_of(GetParam());
  EXPECT_EQ(f.compute + f.exposed, f.step);
  EXPECT_EQ(f.forward + f.backward + f.optimizer, f.step);
  EXPECT_LE(f.exposed, f.in_flight);
  EXPECT_LE(f.in_flight, f.step);
  std::int64_t exposed = 0;
  for (const auto& [name, times] : f.collectives) {
    EXPECT_LE(times.exposed, times.in_flight) << name.first << ' ' << name.second;
    EXPECT_LE(times.in_flight, f.in_flight) << name.first << ' ' << name.second;
    exposed += times.exposed;
  }
  EXPECT_EQ(exposed, f.exposed);
  const overlap::RankOverlap traced = report_of(f.trace);
  EXPECT_EQ(traced.all.total_ns, f.step);
  EXPECT_EQ(traced.all.compute_ns, f.compute);
  EXPECT_EQ(traced.all.exposed_ns, f.exposed);
  EXPECT_EQ(traced.all.communication_ns, f.in_flight);
  if (f.collectives.empty() ||
      f.collectives.begin()->first.first != f.collectives.rbegin()->first.first)
    return;  // the report's rows are of all communicators
  for (const auto& [name, times] : f.collectives) {
    const std::size_t space = name.second.find(' ');
    const auto purpose = space == std::string::npos ? "" : name.second.substr(space + 1);
    EXPECT_EQ(traced.kinds.at({name.second.substr(0, space), purpose}).communication_ns,
              times.in_flight)
        << name.second;
  }
}

const Setting kSettings[] = {
    {"tp=1", "", 1, 1, Overlap::Auto, false, false},
    {"tp=4", "", 1, 1, Overlap::Off, true, false},
    {"tp=4", "20us,10GB/s", 2, 2, Overlap::Always, true, false},
    {"tp=4", "20us,10GB/s", 2, 2, Overlap::Always, false, false},
    {"tp=8", "5us,100GB/s", 1, 1, Overlap::Auto, true, true},
    {"dp=2,tp=4", "10GB/s", 4, 2, Overlap::Auto, true, false},
    {"dp=2,tp=4", "10GB/s", 6, 3, Overlap::Always, false, true},
    {"tp=2,dp=4", "tp=ndr,dp=ndr", 4, 1, Overlap::Always, true, false},
    {"dp=16", "", 16, 1, Overlap::Off, false, false},
    {"dp=16", "5us,2GB/s", 48, 3, Overlap::Auto, false, true},
    {"dp=4,tp=8", "", 8, 2, Overlap::Auto, true, true},
    {"dp=4,tp=2", "dp=20us,1GB/s,tp=nvlink4", 8, 1, Overlap::Always, false, false},
};
INSTANTIATE_TEST_SUITE_P(OfAStep, Times, ::testing::ValuesIn(kSettings));

}  // namespace
}  // namespace coshard::tools
