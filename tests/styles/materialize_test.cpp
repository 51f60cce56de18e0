// Modules made under a DeferredInit, in every cut, beside the same made as always.
#include <coshard/dtensor/distribute/deferred_init.h>
#include "tests/dtensor/checkpoint/stored_files.h"
#include "tests/styles/deferred_modules.h"

namespace coshard::testing {
namespace {

enum class Plan { One, Tp, TpSp, Dp, Fsdp, FsdpTp };
constexpr Plan kPlans[] = {Plan::One, Plan::Tp, Plan::TpSp, Plan::Dp, Plan::Fsdp, Plan::FsdpTp};

nn::CausalLMConfig llama_of(bool tied, DType dtype) {
  nn::CausalLMConfig config = small_llama();
  config.num_key_value_heads = 4;
  config.tie_word_embeddings = tied;
  config.dtype = dtype;
  return config;
}

// Cuts a Llama over all ranks; false: the plan does not fit them.
Task<bool> cut_llama(World& world, nn::CausalLM& model, Plan plan,
                     std::unique_ptr<DataParallel>& replicas) {
  const int n = world.size();
  if (plan == Plan::One) co_return n == 1;
  if (plan == Plan::FsdpTp && n % 2 != 0) co_return false;
  if ((plan == Plan::Tp || plan == Plan::TpSp) && n == 3) co_return false;
  const bool is_tp = plan == Plan::Tp || plan == Plan::TpSp;
  const int tp = is_tp ? n : plan == Plan::FsdpTp ? 2 : 1;
  const DeviceMesh mesh = init_device_mesh(world, {n / tp, tp}, {"dp", "tp"});
  if (tp > 1 || is_tp) {
    Task<void> cut = parallelize_module(model, mesh["tp"], nn::causal_lm_plan(plan == Plan::TpSp));
    co_await std::move(cut);
  }
  if (plan == Plan::Dp) replicas = std::make_unique<DataParallel>(model.parameters(), mesh, 0);
  if (plan == Plan::Fsdp || plan == Plan::FsdpTp) {
    for (const auto& layer : model.model.layers) fully_shard(*layer, mesh["dp"]);
    fully_shard(model, mesh["dp"]);
  }
  co_return true;
}

TEST(DeferredInit, S28GivesTheBitsOfOrdinaryConstructionInEveryPlan) {
  for (const int ranks : {1, 2, 3, 4})
    for (const Plan plan : kPlans)
      for (const bool tied : {false, true})
        for (const DType dtype : {DType::F64, DType::F32, DType::BF16})
          on_ranks(ranks, [=](World& world) -> Task<void> {
            Bits want, got;
            std::array<std::uint64_t, 3> state_before{}, state_after{};
            for (const bool deferred : {false, true}) {
              manual_seed(7);
              const auto model =
                  made_deferred<nn::CausalLM>(deferred, llama_of(tied, dtype), world);
              std::unique_ptr<DataParallel> replicas;
              Task<bool> cutting = cut_llama(world, *model, plan, replicas);
              const bool fits = co_await std::move(cutting);
              if (!fits) co_return;
              materialize(*model);
              (deferred ? got : want) = bits_of(*model);
              (deferred ? state_after : state_before) = state_now();
              EXPECT_EQ(model->lm_head.weight.id() == model->model.embed_tokens.weight.id(), tied);
            }
            EXPECT_EQ(want, got) << "ranks " << ranks << ", plan " << static_cast<int>(plan);
            EXPECT_EQ(state_before, state_after);
          });
}

// A small loss of the model on the same ids for all ranks.
Task<Tensor> loss_of(World& world, nn::CausalLM& model) {
  Task<Tensor> forward = model.forward(integers(world, {2, 4}, 11));
  Tensor logits = co_await std::move(forward);
  co_return sum(mul(logits, logits));
}

// Bits after three steps of AdamW, which is made before the parameters have values.
Task<Bits> trained_bits(World& world, Plan plan, bool deferred, bool& fits) {
  manual_seed(3);
  const auto model = made_deferred<nn::CausalLM>(deferred, llama_of(true, DType::BF16), world);
  std::unique_ptr<DataParallel> replicas;
  Task<bool> cutting = cut_llama(world, *model, plan, replicas);
  fits = co_await std::move(cutting);
  if (!fits) co_return {};
  AdamW optimizer(model->parameters(), {.lr = 0.01});
  materialize(*model);
  for (int step = 0; step < 3; ++step) {
    Task<Tensor> forward = loss_of(world, *model);
    const Tensor loss = co_await std::move(forward);
    Task<void> backward = loss.backward();
    co_await std::move(backward);
    Task<void> stepped = optimizer.step();
    co_await std::move(stepped);
    optimizer.zero_grad();
  }
  co_return bits_of(*model);
}

TEST(DeferredInit, S28TrainsAsAnOrdinaryModel) {
  for (const int ranks : {1, 2, 4})
    for (const Plan plan : kPlans) {
      if (!on_cpu() && ranks != 2) continue;  // an emulated device takes seconds for a step
      on_ranks(ranks, [=](World& world) -> Task<void> {
        bool fits = false;
        Task<Bits> as_always = trained_bits(world, plan, false, fits);
        const auto want = co_await std::move(as_always);
        Task<Bits> later = trained_bits(world, plan, true, fits);
        const auto got = co_await std::move(later);
        EXPECT_EQ(want, got) << "ranks " << ranks << ", plan " << static_cast<int>(plan);
      });
    }
}

// What a device counts for the memory of these tensors.
std::size_t counted_for(World& world, const std::vector<Tensor>& tensors) {
  std::size_t all = 0;
  for (const Tensor& x : tensors) {
    const std::size_t before = world.device()->memory().in_use;
    const Tensor same = Tensor::empty(world.device(), x.local_shape(), x.dtype());
    all += world.device()->memory().in_use - before;
  }
  return all;
}

TEST(DeferredInit, S29TakesNoMemoryUntilItIsLoadedAndThenTheOwnPart) {
  for (const int ranks : {1, 2, 3, 4})
    for (const Plan plan : kPlans) {
      const ScratchFolder scratch;
      on_ranks(ranks, [&](World& world) -> Task<void> {
        Bits want;
        for (const bool deferred : {false, true}) {
          manual_seed(deferred ? 8 : 7);
          const std::size_t before = world.device()->memory().in_use;
          const auto model =
              made_deferred<nn::CausalLM>(deferred, llama_of(true, DType::F32), world);
          CountingObserver counter(world);
          std::unique_ptr<DataParallel> replicas;
          Task<bool> cutting = cut_llama(world, *model, plan, replicas);
          const bool fits = co_await std::move(cutting);
          if (!fits) co_return;
          if (!deferred) {
            Task<void> saved = save(*model, scratch.path("m"));
            co_await std::move(saved);
            want = bits_of(*model);
            continue;
          }
          const std::size_t gradients = world.device()->memory().in_use - before;  // of Dp
          EXPECT_TRUE(plan == Plan::Dp || gradients == 0) << static_cast<int>(plan);
          EXPECT_EQ(counter.total(), 0);
          Task<LoadReport> loading = load(*model, scratch.path("m"));
          const LoadReport report = co_await std::move(loading);
          EXPECT_TRUE(report.missing.empty());
          EXPECT_EQ(world.device()->memory().in_use - before - gradients,
                    counted_for(world, model->parameters()));
          EXPECT_EQ(bits_of(*model), want);
          materialize(*model);
          EXPECT_EQ(bits_of(*model), want);
          Task<Tensor> forward = loss_of(world, *model);
          co_await std::move(forward);
        }
      });
    }
}

TEST(DeferredInit, S29AForwardBeforeIsAnErrorThatNamesTheParameter) {
  for (const int ranks : {1, 2, 3, 4})
    for (const Plan plan : kPlans)
      on_ranks(ranks, [=](World& world) -> Task<void> {
        const auto model = made_deferred<nn::CausalLM>(true, llama_of(false, DType::F32), world);
        std::unique_ptr<DataParallel> replicas;
        Task<bool> cutting = cut_llama(world, *model, plan, replicas);
        const bool fits = co_await std::move(cutting);
        if (!fits) co_return;
        Task<std::string> refused = error_of(discard(loss_of(world, *model)));
        const std::string text = co_await std::move(refused);
        EXPECT_CONTAINS(text, "'model.embed_tokens.weight'");
        EXPECT_CONTAINS(text, "has no values yet");
        materialize(*model);
        Task<Tensor> forward = loss_of(world, *model);
        co_await std::move(forward);
      });
}

TEST(DeferredInit, S29WhatReadsAParameterBeforeIsAnError) {
  const ScratchFolder scratch;
  on_ranks(2, [&](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    const auto linear = made_deferred<nn::Linear>(true, 4, 1, world);
    fully_shard(*linear, mesh);  // rank 1 has no row
    const Tensor weight = linear->weight;
    const auto says = [](const std::string& text) {
      EXPECT_CONTAINS(text, "parameter 'weight'");
      EXPECT_CONTAINS(text, "materialize(module)");
    };
    says(error_of([&] { weight.to_vector(); }));
    says(error_of([&] { weight.data(); }));
    says(error_of([&] { mul(weight, 2.0); }));
    says(error_of([&] { nn::init::zeros_(weight); }));
    says(error_of([&] { redistribute(weight, Layout(Replicate())).tensor().wait(); }));
    Task<std::string> saving = error_of(save(*linear, scratch.path("m")));
    const std::string of_save = co_await std::move(saving);
    says(of_save);
    const auto other = std::make_shared<nn::Linear>(4, 1, world);
    const auto copying = [](Module& to, State from) -> Task<void> {
      Task<LoadReport> copied = load_state_dict(to, std::move(from));
      co_await std::move(copied);
    };
    Task<std::string> from_empty = error_of(copying(*other, state_dict(*linear)));
    const std::string of_copy = co_await std::move(from_empty);
    says(of_copy);
    SGD optimizer(linear->parameters(), {.lr = 0.1});
    weight.set_grad(Tensor::empty(world.device(), weight.spec(), DType::F32));
    optimizer.check_replicas = 0;
    Task<std::string> stepping = error_of(optimizer.step());
    const std::string of_step = co_await std::move(stepping);
    says(of_step);
    std::ostringstream out;
    out << weight;
    EXPECT_CONTAINS(out.str(), "f32[1,4]");
    Task<void> into_empty = copying(*linear, state_dict(*other));
    co_await std::move(into_empty);
    EXPECT_FALSE(is_deferred(weight));
  });
}

// With a table that no file has, and a parameter that is made once its slot is registered.
struct WithTable : Module {
  explicit WithTable(World& world) : table(exp(mul(view(arange(4), {4, 1}), ones(world, {1, 3})))) {
    register_buffer("table", table, false);
    register_parameter("scale", scale);
    scale = randn(world, {3}, DType::F32, true);
  }
  Task<Tensor> run(Tensor x) override { co_return mul(add(x, table), scale); }
  Tensor table, scale;
};

TEST(DeferredInit, S29LoadMakesTheTablesThatNoFileHas) {
  const ScratchFolder scratch;
  on_ranks(2, [&](World& world) -> Task<void> {
    WithTable other(world);
    Task<void> saved = save(other, scratch.path("m"));
    co_await std::move(saved);
    const auto module = made_deferred<WithTable>(true, world);
    EXPECT_TRUE(is_deferred(module->table) && is_deferred(module->scale));
    const std::string text = error_of([&] { module->table.to_vector(); });
    EXPECT_CONTAINS(text, "buffer 'table' (f32[4,3]) has no values yet");
    AdamW optimizer(module->parameters(), {.lr = 0.1});
    const std::string named = error_of([&] { module->scale.to_vector(); });
    EXPECT_CONTAINS(named, "parameter 'scale'");
    Task<LoadReport> loading = load(*module, scratch.path("m"));
    co_await std::move(loading);
    EXPECT_EQ(bits_of(*module), bits_of(other));
  });
}

TEST(DeferredInit, S29ALoadThatFailsLeavesTheRecipes) {
  const ScratchFolder scratch;
  on_ranks(2, [&](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    Mlp small(world, 10, 8, 10);
    Task<void> saved = save(small, scratch.path("m"));
    co_await std::move(saved);
    Bits bits[2];
    for (const bool deferred : {false, true}) {
      manual_seed(1);
      const auto mlp = made_deferred<Mlp>(deferred, world);
      fully_shard(*mlp, mesh);
      const auto loading = [](Module& module, std::string folder) -> Task<void> {
        Task<LoadReport> loaded = load(module, std::move(folder));
        co_await std::move(loaded);
      };
      Task<std::string> refused = error_of(loading(*mlp, scratch.path("m")));
      const std::string text = co_await std::move(refused);
      EXPECT_CONTAINS(text, "has shape");
      EXPECT_EQ(is_deferred(mlp->net2.bias), deferred);
      materialize(*mlp);
      bits[deferred ? 1 : 0] = bits_of(*mlp);
    }
    EXPECT_EQ(bits[0], bits[1]);
  });
}

TEST(DeferredInit, S29WhatIsNotLoadedIsDrawn) {
  for (const int ranks : {1, 2, 3}) {
    const ScratchFolder scratch;
    on_ranks(ranks, [&](World& world) -> Task<void> {
      const DeviceMesh mesh = line(world);
      std::map<std::string, std::vector<double>> values[2];
      for (const bool deferred : {false, true}) {
        manual_seed(5);
        const auto mlp = made_deferred<Mlp>(deferred, world, 10, 16, 10);
        fully_shard(*mlp, mesh);
        if (!deferred) {
          State state;
          state.add("net2.weight", from_local(full_like(full_tensor(mlp->net2.weight), 4), mesh));
          Task<void> saved = save(state, scratch.path("m"));
          co_await std::move(saved);
        }
        Task<LoadReport> loading = load(*mlp, scratch.path("m"), {.strict = false});
        const LoadReport report = co_await std::move(loading);
        EXPECT_EQ(report.missing.size(), 3U);
        EXPECT_EQ(is_deferred(mlp->net1.weight), deferred);
        EXPECT_FALSE(is_deferred(mlp->net2.weight));
        materialize(*mlp);
        for (const NamedParameter& p : mlp->named_parameters())
          values[deferred ? 1 : 0][p.name] = full_tensor(p.slot->detach()).to_vector();
      }
      EXPECT_EQ(values[0], values[1]);
      EXPECT_EQ(values[1]["net2.weight"], std::vector<double>(160, 4));
    });
  }
}

TEST(DeferredInit, IsClosedInAForwardAndInCallsOfTheLibrary) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    Mlp real(world);
    const DeferredInit deferred;
    Mlp mlp(world);
    EXPECT_TRUE(is_deferred(mlp.net1.weight));
    fully_shard(mlp, mesh);
    Tensor x = random(world, {4, 10});
    EXPECT_TRUE(is_deferred(x));
    materialize(x);
    Task<std::string> refused = error_of(discard(mlp.forward(x)));
    const std::string text = co_await std::move(refused);
    EXPECT_CONTAINS(text, "'net1.weight'");
    materialize(mlp);
    AdamW optimizer(mlp.parameters(), {.lr = 0.1});
    Task<Tensor> forward = mlp.forward(x);
    const Tensor y = co_await std::move(forward);
    Task<void> backward = sum(mul(y, y)).backward();
    co_await std::move(backward);
    Task<void> stepped = optimizer.step();
    co_await std::move(stepped);
    EXPECT_FALSE(is_deferred(real.net1.weight));
  });
}

TEST(DeferredInit, WhatRanksDrewApartIsAnErrorOfTheNextCollective) {
  for (const bool whole : {false, true})
    on_ranks(2, [=](World& world) -> Task<void> {
      const DeviceMesh mesh = line(world);
      manual_seed(static_cast<std::uint64_t>(world.rank()));
      const auto linear = made_deferred<nn::Linear>(true, 4, 6, world);
      std::unique_ptr<DataParallel> replicas;
      if (whole)
        replicas = std::make_unique<DataParallel>(linear->parameters(), mesh, 0,
                                                  DataParallelOptions{.src_data_rank = 0});
      else
        fully_shard(*linear, mesh);
      materialize(*linear);
      const auto reduce = [](DeviceMesh on) -> Task<void> {
        co_await full(on, Partial(), {2}, 1).redistribute(Replicate());
      };
      Task<std::string> failing = error_of(reduce(mesh), ErrorKind::CommFailed);
      const std::string text = co_await std::move(failing);
      EXPECT_CONTAINS(text, "drew random stream");
    });
}

}  // namespace
}  // namespace coshard::testing
