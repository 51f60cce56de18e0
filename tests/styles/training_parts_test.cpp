// What a checkpoint of training has beside the model, and what it refuses.
#include "styles/training_parts.h"

#include "tests/dtensor/checkpoint/stored_files.h"
#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

Task<void> step_both(Mlp& mlp, Optimizer& a, Optimizer& b, World& world) {
  Task<Tensor> forward = mlp.net1.forward(random(world, {4, 10}));
  const Tensor hidden = co_await std::move(forward);
  Task<Tensor> second = mlp.net2.forward(hidden);
  const Tensor y = co_await std::move(second);
  a.zero_grad();
  b.zero_grad();
  run_backward(sum(y * y));
  for (Optimizer* each : {&a, &b}) {
    Task<void> stepped = each->step();
    co_await std::move(stepped);
  }
}

TEST(TrainingParts, S35GoOnWithTwoOptimizersTensorsAndValues) {
  const ScratchFolder scratch;
  on_ranks(2, [&](World& world) -> Task<void> {
    Mlp mlp(world), other(world);
    AdamW first(mlp.net1.parameters()), again(other.net1.parameters());
    SGD second(mlp.net2.parameters(), {.lr = 0.1, .momentum = 0.9}),
        also(other.net2.parameters(), {.lr = 0.5, .momentum = 0.9});
    Task<void> once = step_both(mlp, first, second, world);
    co_await std::move(once);
    std::int64_t position = 0x7fffffffffffff01, read_position = 0;
    double best = 0.1, read_best = 0;
    State mean, read_mean;
    mean.add("net1", ones(world.device(), {3}));
    read_mean.add("net1", zeros(world.device(), {3}));
    TrainingParts parts(mlp), read(other);
    parts.add("adamw", first), read.add("adamw", again);
    parts.add("sgd", second), read.add("sgd", also);
    parts.add("mean", mean), read.add("mean", read_mean);
    parts.add("position", &position), read.add("position", &read_position);
    parts.add("best", &best), read.add("best", &read_best);
    Task<void> saved = parts.save(scratch.path("m"), {});
    co_await std::move(saved);
    Task<void> twice = step_both(mlp, first, second, world);
    co_await std::move(twice);
    Task<LoadReport> loaded = read.load(scratch.path("m"), {}, true);
    co_await std::move(loaded);
    EXPECT_EQ(read_position, position);
    EXPECT_EQ(read_best, best);
    EXPECT_EQ(read_mean["net1"].to_vector(), (std::vector<double>{1, 1, 1}));
    EXPECT_EQ(also.lr, 0.1);
    Task<void> next = step_both(other, again, also, world);
    co_await std::move(next);
    EXPECT_EQ(other.net1.weight.to_vector(), mlp.net1.weight.to_vector());
    EXPECT_EQ(other.net2.bias.to_vector(), mlp.net2.bias.to_vector());
  });
}

TEST(TrainingParts, RefuseWhatDoesNotFit) {
  const ScratchFolder scratch;
  on_ranks(2, [&](World& world) -> Task<void> {
    Mlp mlp(world);
    SGD optimizer(mlp.parameters(), {.momentum = 0.9});
    std::int64_t position = 3;
    TrainingParts parts(mlp);
    parts.add("optimizer", optimizer);
    parts.add("position", &position);
    EXPECT_CONTAINS(error_of([&] { parts.add("position", optimizer); }), "there already");
    EXPECT_CONTAINS(error_of([&] { parts.add("values", State()); }), "part of every");
    Task<void> saved = parts.save(scratch.path("m"), {});
    co_await std::move(saved);

    TrainingParts fewer(mlp);
    fewer.add("position", &position);
    Task<std::string> lost = refusal(fewer.load(scratch.path("m"), {}, true));
    const std::string lost_text = co_await std::move(lost);
    EXPECT_CONTAINS(lost_text, "training/optimizer.safetensors");
    TrainingParts values(mlp);
    values.add("optimizer", optimizer);
    Task<std::string> value = refusal(values.load(scratch.path("m"), {}, true));
    const std::string value_text = co_await std::move(value);
    EXPECT_CONTAINS(value_text, "'position'");
    double real = 0;
    values.add("position", &real);
    Task<std::string> kind = refusal(values.load(scratch.path("m"), {}, true));
    const std::string kind_text = co_await std::move(kind);
    EXPECT_CONTAINS(kind_text, "'position'");

    position = world.rank();
    Task<std::string> differs = refusal(parts.save(scratch.path("n"), {}));
    const std::string differs_text = co_await std::move(differs);
    EXPECT_CONTAINS(differs_text, "'position' is 0 on rank 0 and 1 on rank 1");
    Task<void> model = save(mlp, scratch.path("model"));
    co_await std::move(model);
    Task<std::string> alone = refusal(parts.load(scratch.path("model"), {}, true));
    const std::string alone_text = co_await std::move(alone);
    EXPECT_CONTAINS(alone_text, "no checkpoint of training");
  });
}

TEST(TrainingParts, S31WhatWasAddedSinceIsRefusedBeforeAnythingIsFilled) {
  const ScratchFolder scratch;
  on_ranks(2, [&](World& world) -> Task<void> {
    Mlp mlp(world);
    State average, other;
    average.add("a", ones(world.device(), {3}));
    other.add("a", zeros(world.device(), {3})).add("b", zeros(world.device(), {2}));
    std::int64_t position = 3, added = 8;
    TrainingParts parts(mlp);
    parts.add("ema", average);
    parts.add("ema-2", average);
    parts.add("position", &position);
    Task<void> saved = parts.save(scratch.path("m"), {});
    co_await std::move(saved);
    fill_(mlp.net1.weight.detach(), 7);
    TrainingParts more(mlp);
    more.add("ema", average);
    more.add("ema-2", average);
    more.add("position", &position);
    more.add("added", &added);
    Task<std::string> refused = refusal(more.load(scratch.path("m"), {}, true));
    const std::string text = co_await std::move(refused);
    EXPECT_CONTAINS(text, "no value 'added'");
    EXPECT_EQ(mlp.net1.weight.to_vector()[0], 7);
    LoadOptions any;
    any.strict = false;
    position = 0;
    Task<LoadReport> loading = more.load(scratch.path("m"), any, true);
    const LoadReport report = co_await std::move(loading);
    EXPECT_EQ(report.missing, std::vector<std::string>{"training/values: added"});
    EXPECT_EQ(position, 3);
    EXPECT_EQ(added, 8);

    SGD optimizer(mlp.parameters(), {.momentum = 0.9});
    TrainingParts later(mlp);
    later.add("ema", average);
    later.add("ema-2", average);
    later.add("optimizer", optimizer);
    later.add("position", &position);
    Task<std::string> absent = refusal(later.load(scratch.path("m"), {}, true));
    const std::string absent_text = co_await std::move(absent);
    EXPECT_CONTAINS(absent_text, "no part 'training/optimizer', which was added since");
    Task<LoadReport> without = later.load(scratch.path("m"), any, true);
    const LoadReport of_later = co_await std::move(without);
    EXPECT_EQ(of_later.missing, std::vector<std::string>{"training/optimizer"});

    TrainingParts fewer(mlp);
    fewer.add("ema", average);
    fewer.add("position", &position);
    Task<std::string> lost = refusal(fewer.load(scratch.path("m"), {}, true));
    const std::string lost_text = co_await std::move(lost);
    EXPECT_CONTAINS(lost_text, "training/ema-2.safetensors, which is no part of this training");

    TrainingParts grown(mlp);
    grown.add("ema", other);
    grown.add("ema-2", average);
    grown.add("position", &position);
    Task<LoadReport> growing = grown.load(scratch.path("m"), any, true);
    const LoadReport of_grown = co_await std::move(growing);
    EXPECT_EQ(of_grown.missing, std::vector<std::string>{"training/ema: b"});
  });
}

TEST(TrainingParts, S38AReportNamesParametersThatStartAsNew) {
  const ScratchFolder scratch;
  on_ranks(2, [&](World& world) -> Task<void> {
    Mlp mlp(world);
    AdamW of_first(mlp.net1.parameters()), of_all(mlp.parameters());
    TrainingParts parts(mlp), more(mlp);
    parts.add("optimizer", of_first);
    more.add("optimizer", of_all);
    Task<void> saved = parts.save(scratch.path("m"), {});
    co_await std::move(saved);
    Task<std::string> refused = refusal(more.load(scratch.path("m"), {}, true));
    const std::string text = co_await std::move(refused);
    EXPECT_CONTAINS(text, "m/training/optimizer: lacks 'net2.weight', 'net2.bias', ");
    LoadOptions any;
    any.strict = false;
    Task<LoadReport> loading = more.load(scratch.path("m"), any, true);
    const LoadReport report = co_await std::move(loading);
    EXPECT_EQ(report.missing, (std::vector<std::string>{"training/optimizer: net2.weight",
                                                        "training/optimizer: net2.bias"}));
  });
}

// A write after the last step, which the next one starts from.
TEST(TrainingParts, S33HaveMastersOfParametersThatWereWritten) {
  const ScratchFolder scratch;
  on_ranks(2, [&](World& world) -> Task<void> {
    std::vector<std::vector<double>> ends;
    for (const bool resumes : {false, true}) {
      manual_seed(3);
      nn::Linear linear(4, 3, world, {.dtype = DType::BF16}),
          other(4, 3, world, {.dtype = DType::BF16});
      AdamW optimizer(linear.parameters()), again(other.parameters());
      const auto step = [&](nn::Linear& model, AdamW& with) -> Task<void> {
        Task<Tensor> forward = model.forward(ones(world.device(), {2, 4}, DType::BF16));
        const Tensor y = co_await std::move(forward);
        with.zero_grad();
        run_backward(sum(y * y));
        Task<void> stepped = with.step();
        co_await std::move(stepped);
      };
      Task<void> first = step(linear, optimizer);
      co_await std::move(first);
      {
        const NoGradGuard off;
        fill_(linear.weight, 0.37);
      }
      if (resumes) {
        const std::string folder = scratch.path("m");
        Task<void> saved = save(linear, optimizer, folder);
        co_await std::move(saved);
        Task<LoadReport> loaded = load(other, again, folder);
        co_await std::move(loaded);
      }
      Task<void> second = resumes ? step(other, again) : step(linear, optimizer);
      co_await std::move(second);
      ends.push_back((resumes ? other : linear).weight.to_vector());
    }
    EXPECT_EQ(ends[0], ends[1]);
  });
}

TEST(TrainingParts, S36KeepStreamsOfRanksThatDrawApart) {
  const ScratchFolder scratch;
  const auto run = [&](int ranks, bool saves) {
    on_ranks(ranks, [&](World& world) -> Task<void> {
      Mlp mlp(world);
      manual_seed(saves ? 70 + static_cast<std::uint64_t>(world.rank()) : 5);
      TrainingParts parts(mlp);
      if (saves) {
        Task<void> saved = parts.save(scratch.path("m"), {});
        co_await std::move(saved);
        co_return;
      }
      Task<std::string> loading = refusal(parts.load(scratch.path("m"), {}, true));
      const std::string text = co_await std::move(loading);
      if (ranks == 2) {
        EXPECT_EQ(text, "");
        EXPECT_EQ(random_state().seed, 70U + static_cast<std::uint64_t>(world.rank()));
      } else {
        EXPECT_CONTAINS(text, "resume on 2 ranks");
      }
    });
  };
  run(2, true);
  run(2, false);
  run(1, false);
}

TEST(TrainingParts, RefuseRatesThatDifferAndNamesThatAreNone) {
  const ScratchFolder scratch;
  on_ranks(2, [&](World& world) -> Task<void> {
    Mlp mlp(world);
    SGD optimizer(mlp.parameters(), {.lr = 0.1 * (world.rank() + 1)});
    TrainingParts parts(mlp);
    parts.add("optimizer", optimizer);
    Task<std::string> saving = refusal(parts.save(scratch.path("m"), {}));
    const std::string text = co_await std::move(saving);
    EXPECT_CONTAINS(text, "learning rate of 'optimizer' is 0.1 on rank 0 and 0.2 on rank 1");
    for (const char* name : {"../x", "a\nb", ""})
      EXPECT_CONTAINS(error_of([&] { parts.add(name, State()); }), "no name of a file");
  });
}

}  // namespace
}  // namespace coshard::testing
