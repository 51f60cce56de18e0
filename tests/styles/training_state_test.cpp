// Training that is saved and goes on, on the same ranks to the bit, on others as closely as it
// adds.
#include <mutex>

#include <coshard/dtensor/capture/capture.h>
#include "tests/dtensor/checkpoint/stored_files.h"
#include "tests/styles/cut_models.h"

namespace coshard::testing {
namespace {

using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(std::vector<Tensor>)>;

struct Kind {
  DType dtype;
  MakeOptimizer optimizer;
  const char* name;
};
const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all{
      {DType::F64,
       [](std::vector<Tensor> p) {
         return std::make_unique<AdamW>(std::move(p), AdamWOptions{.lr = 0.01});
       },
       "AdamW"},
      {DType::BF16,
       [](std::vector<Tensor> p) {
         return std::make_unique<AdamW>(std::move(p), AdamWOptions{.lr = 0.01, .amsgrad = true});
       },
       "AdamW amsgrad"},
      {DType::F64,
       [](std::vector<Tensor> p) {
         return std::make_unique<SGD>(std::move(p),
                                      SGDOptions{.lr = 0.05, .momentum = 0.9, .nesterov = true});
       },
       "SGD"}};
  return all;
}

TEST(TrainingState, S23GoesOnToTheBitAndInOtherCuts) {
  for (const Kind& run : kinds())
    for (const Cutting& from : kCuttings) {
      if (!runs_here(from)) continue;
      const ScratchFolder scratch;
      std::mutex mutex;
      Losses want;  // equal on all ranks
      on_ranks(from.ranks, [&](World& world) -> Task<void> {
        Task<std::shared_ptr<nn::CausalLM>> making = made(world, from.cut, 1, run.dtype);
        const auto model = co_await std::move(making);
        const auto optimizer = run.optimizer(model->parameters());
        Task<Losses> before = trained(world, *model, *optimizer, 0, 3);
        co_await std::move(before);
        optimizer->lr *= 0.5;
        Task<void> saved = save(*model, *optimizer, scratch.path("m"));
        co_await std::move(saved);
        Task<Losses> after = trained(world, *model, *optimizer, 3, 6);
        Losses losses = co_await std::move(after);
        const std::lock_guard lock(mutex);
        want = std::move(losses);
      });
      for (const Cutting& to : kCuttings) {
        const bool same = to.cut == from.cut && to.ranks == from.ranks;
        if (!runs_here(to) || (!same && run.dtype == DType::BF16))
          continue;  // sums of other orders round otherwise
        on_ranks(to.ranks, [&](World& world) -> Task<void> {
          Task<std::shared_ptr<nn::CausalLM>> making = made(world, to.cut, 2, run.dtype);
          const auto model = co_await std::move(making);
          const auto optimizer = run.optimizer(model->parameters());
          Task<LoadReport> loaded = load(*model, *optimizer, scratch.path("m"));
          co_await std::move(loaded);
          Task<Losses> after = trained(world, *model, *optimizer, 3, 6);
          const Losses losses = co_await std::move(after);
          for (std::size_t i = 0; i < want.size(); ++i) {
            if (same)
              EXPECT_EQ(losses[i], want[i]) << run.name << ", " << to.ranks;
            else
              EXPECT_NEAR(losses[i], want[i], 1e-10) << run.name << ", " << to.ranks;
          }
        });
      }
    }
}

// What a captured step has recorded is there after a load, with the values that were saved.
TEST(LoadedCapture, S37ACapturedStepGoesOnFromWhatIsLoaded) {
  for (const Kind& run : kinds()) {
    const ScratchFolder scratch;
    on_ranks(1, [&](World& world) -> Task<void> {
      nn::Linear linear(6, 4, world, {.dtype = run.dtype});
      const auto optimizer = run.optimizer(linear.parameters());
      const CapturedStep step = capture([&](std::vector<Tensor> in) -> Task<Tensor> {
        const Tensor y = co_await linear.forward(in[0]);
        Tensor loss = sum(mul(y, y));
        co_await backward(loss);
        co_await optimizer->step();
        optimizer->zero_grad();
        co_return loss;
      });
      const Tensor x = random(world, Shape{3, 6}).to(run.dtype);
      const auto three_steps = [&]() -> Task<std::vector<double>> {
        for (int i = 0; i < 3; ++i) {
          Task<Tensor> stepping = step(x);
          co_await std::move(stepping);
        }
        co_return linear.weight.to_vector();
      };
      Task<std::vector<double>> begun = three_steps();
      co_await std::move(begun);
      optimizer->lr *= 0.5;
      Task<void> saved = save(linear, *optimizer, scratch.path("m"));
      co_await std::move(saved);
      Task<std::vector<double>> first = three_steps();
      const std::vector<double> want = co_await std::move(first);
      optimizer->lr *= 3;
      Task<LoadReport> loading = load(linear, *optimizer, scratch.path("m"));
      co_await std::move(loading);
      Task<std::vector<double>> again = three_steps();
      const std::vector<double> got = co_await std::move(again);
      EXPECT_EQ(got, want) << run.name;
      EXPECT_EQ(step.recorded(), !on_cpu());
      optimizer->start(0, 0);  // what was recorded reads what is not there any more
      std::string said;
      try {
        Task<Tensor> stepping = step(x);
        co_await std::move(stepping);
      } catch (const Error& error) {
        said = error.message();
      }
      EXPECT_EQ(said.find("begins anew") != std::string::npos, !on_cpu()) << said;
    });
  }
}

}  // namespace
}  // namespace coshard::testing
