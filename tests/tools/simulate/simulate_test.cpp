// What `coshard simulate` prints and writes.
#include "tools/simulate/simulate.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include <coshard/runtime/error.h>
#include "profiling/json.h"
#include "profiling/overlap/overlap_report.h"
#include "tests/support/json.h"
#include "tools/trace/trace_report.h"

namespace coshard::tools {
namespace {

using coshard::testing::json_holds, coshard::testing::temporary_path;

// A Llama of two layers, in a file.
class Simulate : public ::testing::Test {
 protected:
  Simulate() {
    std::ofstream(model_)
        << R"({"model_type": "llama", "vocab_size": 1024, "hidden_size": 512, "intermediate_size": 1536,
        "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 8})";
    options_.model = model_;
    options_.mesh = "dp=4,tp=4";
    options_.gpus_per_node = 4;
    options_.seq = 1024;
  }
  ~Simulate() override { std::filesystem::remove(model_); }
  std::string said() {
    std::ostringstream out;
    simulate_training(options_, out);
    return out.str();
  }
  void expect_said(const std::string& part) {
    const std::string text = said();
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
  }

  std::string model_ = temporary_path("model.json");
  SimulateOptions options_;
};

TEST_F(Simulate, NamesWhatItForecastsAndEachFigureWithItsSource) {
  expect_said("on 16 x h100, mesh dp=4,tp=4: 4 x 1024 tokens a step");
  expect_said("dp   4 over ndr, 45.0 GB/s; 1 to a node");
  expect_said("optimizer         0.02     AdamW: f32 master copy, f32 m and v");
  expect_said("saved by forward; recompute none");
  expect_said("figures (* not measured)");
  expect_said("nvlink4  gbps                     365.6  stas00/ml-engineering");
  expect_said("assumed *\n");
}

// Gradients that are left over when backward ends.
TEST_F(Simulate, WhatTheOptimizerWaitsForIsNoModules) {
  options_.json = true;
  EXPECT_TRUE(json_holds(said(), R"(
waits = lambda m, part: d['modules'][m][part]['exposed_ms']
gradients = sum(c['exposed_ms'] for c in d['collectives'] if c['communicator'] == 'dp')
assert gradients > 0 and abs(waits('', 'forward') - gradients) < 0.1 * gradients, (gradients, d['modules'][''])
total = sum(waits(m, p) for m in ('', 'lm_head', 'model') for p in ('forward', 'backward'))
assert abs(total - d['exposed_ms']) < 1e-6, (total, d['exposed_ms'])
)"));
}

TEST_F(Simulate, NamesOfCollectivesFitTheirColumn) {
  options_.overlap = "always";
  for (const char* plan : {"tp", "tp-sp"}) {
    options_.plan = plan;
    const std::string text = said();
    std::istringstream table(text.substr(text.find("\ncollectives ") + 1));
    std::string head, line;
    std::getline(table, head);
    while (std::getline(table, line) && !line.empty()) EXPECT_EQ(line.size(), head.size()) << line;
  }
}

TEST_F(Simulate, SaysWhatDoesNotFit) {
  options_.model = "llama-70b", options_.mesh = "tp=4", options_.seq = 8192;
  expect_said("GB of 80.0: does not fit");
  options_.gpu = "ideal";
  EXPECT_EQ(said().find("does not fit"), std::string::npos);
}

TEST_F(Simulate, IsTheSameEachTime) { EXPECT_EQ(said(), said()); }

TEST_F(Simulate, PrintsJson) {
  options_.json = true;
  EXPECT_TRUE(json_holds(said(), R"(
assert d['mesh'] == 'dp=4,tp=4' and d['recompute'] == 'none', d
assert abs(d['step_ms'] - d['forward_ms'] - d['backward_ms'] - d['optimizer_ms']) < 1e-6, d
assert abs(d['step_ms'] - d['compute_ms'] - d['exposed_ms']) < 1e-6, d
assert d['memory']['fits'] and d['memory']['capacity'] == 80e9, d
assert d['modules']['model.layers.*']['forward']['total_ms'] > 0
assert {'dp', 'tp'} <= {c['communicator'] for c in d['collectives']}
assert all(f['source'] for f in d['figures'])
)"));
}

TEST_F(Simulate, WritesATraceInVirtualTimeThatTheReportReads) {
  options_.trace = temporary_path("trace.json");
  const Question question = question_of(options_);
  const Forecast forecast = forecast_of(question.run, question.processor);
  expect_said("trace: " + options_.trace);
  const auto report = overlap::overlap_of(overlap::read_trace(options_.trace));
  TraceReportOptions read{options_.trace, "", "", false};
  std::ostringstream out;
  trace_report(read, out);
  EXPECT_TRUE(out.str().starts_with(
      options_.trace +
      ": a simulation of 16 ranks (dp=4,tp=4 of h100), of which rank 0 stands for "
      "all; links: dp 8.4us+3x14us,45GB/s or 6.6us+3x2.7us,22.5GB/s; tp "
      "8.4us+3x3.4us,365.6GB/s or 6.6us+3x0.6us,141GB/s\n"))
      << out.str();
  std::filesystem::remove(options_.trace);
  ASSERT_EQ(report.ranks.size(), 1U);
  const overlap::Whole& all = report.ranks[0].all;
  EXPECT_EQ(all.compute_ns, forecast.compute);
  EXPECT_EQ(all.exposed_ns, forecast.exposed);
  EXPECT_EQ(all.total_ns, forecast.step);
  EXPECT_GT(report.ranks[0].modules.at("model.layers.1.mlp").compute_ns, 0);
}

TEST_F(Simulate, ATraceIsNotWrittenIntoTheForecast) {
  options_.trace = "/dev/stdout";
  EXPECT_EQ(refusal([&] { said(); }),
            "--trace /dev/stdout: is stdout, to which the forecast is written");
}

// Links, GPUs and models count by their figures, however they are named.
TEST_F(Simulate, ABaselineIsOfTheSameLinkGpuAndModel) {
  const std::string gpu = temporary_path("gpu.json"), base = temporary_path("base.json"),
                    trace = temporary_path("trace.json");
  const auto write_gpu = [&gpu](const char* tflops) {
    std::ofstream(gpu) << R"({"memory_gb": 80, "memory_gbps": 3015, "product_tflops": )" << tflops
                       << R"(, "wide_product_tflops": 53.6, "attention_tflops": 476.7,
                            "multiprocessors": 132, "kernel_us": 2})";
  };
  write_gpu("794.5");
  options_.overlap = "off", options_.gpu = gpu, options_.link = "20us,10GB/s";
  options_.trace = base;
  said();
  options_.trace = trace;
  const auto compared = [&] {
    said();
    std::ostringstream out;
    trace_report({trace, base, "", false}, out);
    return out.str();
  };
  options_.link = "0.02ms,10000MB/s", options_.model = "/." + model_, options_.gpu = "/." + gpu;
  EXPECT_EQ(compared().find("is not known"), std::string::npos) << compared();
  options_.link = "20us,11GB/s";
  EXPECT_NE(compared().find("E is not known: the baseline is on a link of dp 20us,10GB/s; tp "
                            "20us,10GB/s, the trace on a link of dp 20us,11GB/s"),
            std::string::npos)
      << compared();
  options_.link = "", options_.gpus_per_node = 2;
  EXPECT_NE(compared().find("E is not known"), std::string::npos) << compared();
  write_gpu("79.45");
  try {
    compared();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("product_tflops=79.45,"), std::string::npos)
        << error.what();
  }
  for (const std::string& file : {gpu, base, trace}) std::filesystem::remove(file);
}

// The parts of a woven batch hide each other's collectives: pieces would only cost.
TEST_F(Simulate, ChoosesNoPiecesForLayersOfAWovenBatch) {
  const auto step = [&](const char* overlap, int weave) {
    options_.overlap = overlap, options_.weave = weave;
    const Question question = question_of(options_);
    return forecast_of(question.run, question.processor).step;
  };
  options_.mesh = "tp=4", options_.batch = 8;
  for (const char* plan : {"tp", "tp-sp"})
    for (const char* link : {"5us,20GB/s", "20us,50GB/s", "5us,100GB/s"}) {
      options_.plan = plan, options_.link = link;
      EXPECT_EQ(step("auto", 2), step("off", 2)) << plan << " over " << link;
      EXPECT_NE(step("always", 2), step("off", 2)) << plan << " over " << link;
    }
}

TEST_F(Simulate, SearchesMeshesThatFit) {
  options_.search = true;
  options_.mesh = "", options_.gpus = 8, options_.gpus_per_node = 8;
  // dp=8; dp=4,tp=2; dp=2,tp=4; tp=8: each with two policies, and all but the first with two plans.
  expect_said("14 of 14 choices fit on 8 x h100");
  const std::string text = said();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 12);
  options_.json = true;
  EXPECT_TRUE(json_holds(said(), R"(
assert len(d) == 10, d
assert [x['step_ms'] for x in d] == sorted(x['step_ms'] for x in d)
)"));
}

TEST_F(Simulate, ANumberOfGpusMustBeThatOfTheMesh) {
  options_.gpus = 16;
  expect_said("on 16 x h100");
  options_.gpus = 8;
  try {
    said();
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "--gpus 8 contradicts --mesh dp=4,tp=4, which has 16");
  }
}

TEST_F(Simulate, ASearchNeedsANumberOfGpus) {
  options_.search = true;
  EXPECT_THROW(said(), Error);
  options_.mesh = "", options_.gpus = 7, options_.batch = 3;
  EXPECT_THROW(said(), Error);
}

TEST_F(Simulate, CountsBiases) {
  options_.json = true;
  const auto parameters = [&](const char* biases) {
    std::ofstream(model_)
        << R"({"model_type": "llama", "vocab_size": 1024, "hidden_size": 512, "intermediate_size": 1536,
        "num_hidden_layers": 2, "num_attention_heads": 8, "attention_bias": )"
        << biases << R"(, "mlp_bias": )" << biases << "}";
    return Json::parse(said())["parameters"].get<double>();
  };
  for (const char* plan : {"tp", "tp-sp"}) {
    options_.plan = plan;
    EXPECT_EQ(parameters("true") - parameters("false"), 2 * (4 * 512 + 2 * 1536 + 512)) << plan;
  }
}

TEST_F(Simulate, RefusesAStepThatTakesMoreThanItCanCount) {
  const auto refused = [&](const std::string& named) {
    try {
      said();
      ADD_FAILURE() << "nothing was thrown for " << named;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::BadInput);
      EXPECT_NE(std::string(error.what()).find(named), std::string::npos) << error.what();
    }
  };
  for (const char* link : {"1us,1B/s", "1e9s,1B/s"}) {
    options_.link = link;
    refused("sim: the program takes more than 1000000000000000 ns");
  }
  options_.link = "";
  std::ofstream(model_)
      << R"({"model_type": "llama", "vocab_size": 10000000, "hidden_size": 10000000,
      "intermediate_size": 10000000, "num_hidden_layers": 1000, "num_attention_heads": 10000})";
  refused("sim: the program needs more than 1000000000000000 bytes of memory");
}

TEST_F(Simulate, ATraceOverwritesNoInput) {
  const std::string link = temporary_path("link.json");
  std::ofstream(link) << R"({"gbps": 1, "base_us": 2, "step_us": 3, "crosses_nodes": 1})";
  options_.link = link;
  for (const std::string& input : {model_, link}) {
    options_.trace = input;
    try {
      said();
      ADD_FAILURE() << "nothing was thrown for " << input;
    } catch (const Error& error) {
      EXPECT_EQ(error.what(),
                "--trace " + input + ": is an input of this run, which it would overwrite");
    }
  }
  std::filesystem::remove(link);
}

TEST_F(Simulate, ATraceThatCannotBeWrittenIsNamed) {
  options_.trace = "/nowhere/trace.json";
  try {
    said();
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("--trace /nowhere/trace.json: "), std::string::npos);
  }
}

}  // namespace
}  // namespace coshard::tools
