// SmolLM2-135M, as make_smollm2.py writes it: figures of opening and loading it, and the logits that
// transformers computes. $COSHARD_SMOLLM2 is its folder; real_models_test.py runs each case in a process of
// its own, since memory is measured at its highest.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <vector>

#include <coshard/coshard.h>
#include "tests/support/ranks.h"

namespace coshard::testing {
namespace {

constexpr std::int64_t kIds = 24;

std::string smollm2(const char* name) {
  const std::string folder = variable("COSHARD_SMOLLM2", "");
  CS_REQUIRE(!folder.empty(), "COSHARD_SMOLLM2 names no folder; run real_models_test.py");
  return folder + "/" + name;
}

// Whole on each rank, or cut by the plan of transformers, with and without sequence parallelism, or by
// fully_shard.
enum class Cut { Whole, Tp, TpSp, Sharded };

Task<std::shared_ptr<nn::LanguageModel>> loaded(World& world, const char* name, Cut cut) {
  const std::shared_ptr<nn::LanguageModel> model = nn::open_model(smollm2(name), world);
  const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"ranks"});
  if (cut == Cut::Sharded) {
    for (const auto& block : model->blocks()) fully_shard(*block, mesh);
    fully_shard(*model, mesh);
  } else if (cut != Cut::Whole) {
    Task<void> cutting = parallelize_module(*model, mesh, model->plan(cut == Cut::TpSp));
    co_await std::move(cutting);
  }
  Task<LoadReport> loading = load(*model, smollm2(name));
  const LoadReport report = co_await std::move(loading);
  EXPECT_TRUE(report.missing.empty() && report.unexpected.empty() && report.cast.empty());
  co_return model;
}

// ---- memory and time

constexpr int kRanks = 3;

std::int64_t most_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == "VmHWM:") {
      std::int64_t kilobytes = 0;
      status >> kilobytes;
      return kilobytes * 1024;
    }
  throw Error(ErrorKind::BadInput, "no VmHWM in /proc/self/status");
}

void expect_little_memory(Cut cut) {
  constexpr std::int64_t kPerRank = 256'000'000;
  on_ranks(kRanks, [cut](World& world) -> Task<void> {
    Task<std::shared_ptr<nn::LanguageModel>> loading = loaded(world, "whole", cut);
    const auto model = co_await std::move(loading);
    // All ranks have theirs before the first one leaves.
    const DeviceMesh mesh = init_device_mesh(world, {kRanks}, {"ranks"});
    const Tensor met = full_tensor(zeros(mesh, Shard(0), {kRanks}));
    EXPECT_EQ(met.to_vector().size(), 3U);
  });
  const auto once =
      static_cast<std::int64_t>(std::filesystem::file_size(smollm2("whole/model.safetensors")));
  std::printf("VmHWM %.0f MB, the model once %.0f MB\n", static_cast<double>(most_bytes()) / 1e6,
              static_cast<double>(once) / 1e6);
  EXPECT_GT(most_bytes(), once);
  EXPECT_LT(most_bytes(), once + kRanks * kPerRank);
}

TEST(SmolLM2, S26LoadOnThreeRanksCutByAPlanTakesLittleMemory) { expect_little_memory(Cut::Tp); }
TEST(SmolLM2, S26LoadOnThreeRanksFullyShardedTakesLittleMemory) {
  expect_little_memory(Cut::Sharded);
}

TEST(SmolLM2, S71OpensAndLoadsOnOneRank) {
  std::ifstream in(smollm2("whole/model.safetensors"), std::ios::binary);
  std::vector<char> bytes(1 << 20);
  while (in.read(bytes.data(), std::ssize(bytes))) {
  }  // into the page cache
  std::vector<double> seconds;
  on_ranks(1, [&](World& world) -> Task<void> {
    constexpr int kRuns = 5;
    for (int run = 0; run < kRuns; ++run) {
      const auto begin = std::chrono::steady_clock::now();
      Task<std::shared_ptr<nn::LanguageModel>> loading = loaded(world, "whole", Cut::Whole);
      const auto model = co_await std::move(loading);
      seconds.push_back(
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
  });
  std::ranges::sort(seconds);
  std::printf("open and load, warm, of %zu: median %.2f s, least %.2f s\n", seconds.size(),
              seconds[seconds.size() / 2], seconds.front());
  EXPECT_LT(seconds[seconds.size() / 2], 5);  // 0.5 where nothing else runs
}

// ---- logits

// Within 1e-4 of the largest.
void expect_logits(const Tensor& got, const Tensor& want) {
  const Tensor full = got.is_distributed() ? full_tensor(got.detach()) : got.detach();
  ASSERT_EQ(full.shape(), want.shape());
  const std::vector<double> a = full.to_vector(), b = want.to_vector();
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    worst = std::max(worst, std::abs(a[i] - b[i]));
    largest = std::max(largest, std::abs(b[i]));
  }
  std::printf("logits differ by %.1e of the largest, %.1f\n", worst / largest, largest);
  EXPECT_TRUE(worst <= 1e-4 * largest) << worst << " of " << largest;
}

void compare_logits(int ranks, Cut cut, const char* name = "whole") {
  on_ranks(ranks, [&](World& world) -> Task<void> {
    Task<std::shared_ptr<nn::LanguageModel>> opening = loaded(world, name, cut);
    const auto model = co_await std::move(opening);
    model->train(false);
    State want;
    want.add("ids", zeros(world.device(), {1, kIds}, DType::I64));
    want.add("logits", zeros(world.device(), {1, kIds, model->vocab_size()}));
    Task<LoadReport> reading = load(want, smollm2("expected.safetensors"));
    co_await std::move(reading);
    const Tensor logits = co_await model->forward(want["ids"]);
    expect_logits(logits, want["logits"]);
  });
}

TEST(SmolLM2, S5LogitsOnOneRank) { compare_logits(1, Cut::Whole); }
TEST(SmolLM2, S5LogitsOnOneRankOfAnIndex) { compare_logits(1, Cut::Whole, "sharded"); }
TEST(SmolLM2, S5LogitsOnTwoRanksFullySharded) { compare_logits(2, Cut::Sharded); }
TEST(SmolLM2, S5LogitsOnThreeRanksFullyShardedOfAnIndex) {
  compare_logits(3, Cut::Sharded, "sharded");
}
TEST(SmolLM2, S5LogitsOnThreeRanksCutByAPlan) { compare_logits(3, Cut::Tp); }
TEST(SmolLM2, S5LogitsOnThreeRanksCutAlongTheSequence) { compare_logits(3, Cut::TpSp); }
// 9 heads and 3 key heads.
TEST(SmolLM2, S55LogitsOnTwoRanksCutByAPlan) { compare_logits(2, Cut::Tp); }
TEST(SmolLM2, S55LogitsOnFourRanksCutAlongTheSequence) { compare_logits(4, Cut::TpSp); }

// Where real_models_test.py opens it with transformers.
TEST(SmolLM2, S3SavedFromThreeRanks) {
  on_ranks(3, [](World& world) -> Task<void> {
    Task<std::shared_ptr<nn::LanguageModel>> opening = loaded(world, "sharded", Cut::Tp);
    const auto model = co_await std::move(opening);
    Task<void> saving = save(*model, smollm2("saved"), {.overwrite = true});
    co_await std::move(saving);
  });
}

}  // namespace
}  // namespace coshard::testing
