// Data parallelism beside tensor parallelism: gradients as when they are reduced after backward,
// the order of issue, what runs under what, and every interleaving.
#include <algorithm>

#include <coshard/runtime/launch/simulate.h>
#include "tests/styles/support.h"
#include "tests/support/seeds.h"

namespace coshard::testing {
namespace {

using AllValues = std::vector<std::vector<double>>;

nn::TransformerConfig config_of(DType dtype) {
  nn::TransformerConfig config = tiny_transformer();
  config.ffn = 22;  // 4 parts of 6, 6, 6 and 4
  config.dtype = dtype;
  return config;
}

struct Plan {
  int tp = 2;
  bool sequence_parallel = false, recomputes = false;
  std::optional<DataParallelOptions> buckets;  // none: after backward
  DType dtype = DType::F32;
};

// The parameters after two steps of a Transformer on (dp, tp).
Task<AllValues> trained(World& world, Plan plan) {
  manual_seed(5);
  nn::Transformer model(config_of(plan.dtype), world);
  const DeviceMesh mesh = init_device_mesh(world, {world.size() / plan.tp, plan.tp}, {"dp", "tp"});
  co_await parallelize_module(model, mesh["tp"], nn::transformer_plan(plan.sequence_parallel));
  if (plan.recomputes) model.layers[0].set_recompute();
  AdamW optimizer(model.parameters(), {.lr = 0.01});
  std::optional<DataParallel> parallel;
  if (plan.buckets) parallel.emplace(model.parameters(), mesh, 0, *plan.buckets);
  manual_seed(static_cast<std::uint64_t>(9 + mesh.local_rank("dp")));
  for (int step = 0; step < 2; ++step) {
    optimizer.zero_grad();
    const Tensor tokens = randint(0, 32, Shape{2, 8});
    const Tensor logits = co_await model.forward(tokens);
    const Tensor loss = co_await loss_parallel_cross_entropy(logits, tokens);
    co_await backward(loss);
    if (!parallel) all_reduce_gradients(model.parameters(), mesh, 0, Reduce::Avg);
    Task<Tensor> clipped = clip_grad_norm(model.parameters(), 1.0);
    co_await std::move(clipped);
    co_await optimizer.step();
  }
  AllValues all;
  for (const Tensor& p : model.parameters()) all.push_back(p.detach().raw_local().to_vector());
  co_return all;
}

Task<void> expect_as_after_backward(World& world, Plan plan) {
  plan.buckets.reset();
  const AllValues want = co_await trained(world, plan);
  for (const Overlap overlap : {Overlap::Off, Overlap::Always}) {
    plan.buckets = DataParallelOptions{.overlap = overlap, .bucket_bytes = 2000};
    const AllValues got = co_await trained(world, plan);
    EXPECT_EQ(got, want);
  }
}

TEST(DataParallelStyles, TrainATransformerBitwiseAsReducingAfterBackward) {
  on_ranks(4, [](World& world) -> Task<void> {
    for (const bool sequence_parallel : {false, true})
      for (const bool recomputes : {false, true}) {
        const Plan plan{
            .sequence_parallel = sequence_parallel, .recomputes = recomputes, .buckets = {}};
        co_await expect_as_after_backward(world, plan);
      }
    const Plan bf16{.sequence_parallel = true, .buckets = {}, .dtype = DType::BF16};
    co_await expect_as_after_backward(world, bf16);
    const Plan alone{.tp = 1, .buckets = {}};
    co_await expect_as_after_backward(world, alone);
  });
}

// What this rank issues, in order.
class Issues final : public Observer {
 public:
  explicit Issues(World& world) : world_(world) { world.add_observer(this); }
  ~Issues() override { world_.remove_observer(this); }
  void issued(const CommEvent& event, std::int64_t) override {
    all.push_back(str_cat(event.communicator, " ", to_string(event.kind), " ", event.label));
  }
  std::vector<std::string> all;

 private:
  World& world_;
};

// tp shards of 6, 6, 6 and 4 rows: what leaves when does not depend on a rank's own sizes.
TEST(DataParallelStyles, IssueInTheSameOrderOnAllRanks) {
  std::vector<std::vector<std::string>> issued(8);
  on_ranks(8, [&issued](World& world) -> Task<void> {
    const Issues seen(world);
    const Plan plan{
        .tp = 4, .sequence_parallel = true, .buckets = DataParallelOptions{.bucket_bytes = 1000}};
    co_await trained(world, plan);
    issued[static_cast<std::size_t>(world.rank())] = seen.all;
  });
  for (const auto& one : issued) EXPECT_EQ(one, issued[0]);
  // Buckets leave between the collectives of tensor parallelism.
  const auto is_bucket = [](const std::string& text) { return text == "dp all_reduce gradients"; };
  const auto first = std::ranges::find_if(issued[0], is_bucket);
  const auto after = std::find_if_not(first, issued[0].end(), is_bucket);
  EXPECT_NE(std::find_if(after, issued[0].end(), is_bucket), issued[0].end());
}

// What was under way while gradients were.
class UnderWay final : public Observer {
 public:
  explicit UnderWay(World& world) : world_(world) { world.add_observer(this); }
  ~UnderWay() override { world_.remove_observer(this); }
  void issued(const CommEvent& event, std::int64_t now) override { begun_[event.id] = now; }
  void ready(const CommEvent& event, std::int64_t, std::int64_t done, std::int64_t) override {
    (event.label == "gradients" ? spans_ : others_).push_back({begun_[event.id], done});
  }
  void computed(std::string_view, ComputeClass what, std::int64_t begin,
                std::int64_t end) override {
    if (what == ComputeClass::Gemm) products_.push_back({begin, end});
  }
  std::ptrdiff_t hidden_products() const { return beside_gradients(products_); }
  // Other collectives that were under way at the same time.
  std::ptrdiff_t others() const { return beside_gradients(others_); }

 private:
  struct Span {
    std::int64_t begin, end;
  };
  std::ptrdiff_t beside_gradients(const std::vector<Span>& some) const {
    return std::ranges::count_if(some, [this](const Span& one) {
      return std::ranges::any_of(spans_, [&one](const Span& span) {
        return one.begin < span.end && span.begin < one.end;
      });
    });
  }
  World& world_;
  std::map<std::uint64_t, std::int64_t> begun_;
  std::vector<Span> spans_, others_, products_;
};

Task<std::ptrdiff_t> hidden_products(World& world, Overlap overlap, std::int64_t bucket_bytes) {
  Mlp mlp(world, 64, 64, 64);
  const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"dp"});
  const DataParallel parallel(mlp.parameters(), mesh, 0,
                              {.overlap = overlap, .bucket_bytes = bucket_bytes});
  const Tensor x = random(world, Shape{32, 64});
  const Tensor y = co_await mlp.forward(x);
  const Tensor loss = sum(mul(y, y));
  const UnderWay seen(world);
  co_await backward(loss);
  std::vector<Tensor> gradients;
  for (const Tensor& p : mlp.parameters()) gradients.push_back(p.grad());
  Task<void> arrived = arrival_of(std::move(gradients));
  co_await std::move(arrived);
  co_return seen.hidden_products();
}

// The link takes far longer than a machine that is busy takes for the next product.
TEST(DataParallelStyles, ComputeTheGradientsOfLayersUnderThoseOfTheLaterOnes) {
  if (!on_cpu() || test_options(2).communicator != "local") GTEST_SKIP() << "needs a link";
  WorldOptions options = test_options(2);
  options.link = parse_link("300ms,100GB/s");
  run_ranks(options, [](World& world) -> Task<void> {
    constexpr std::int64_t kLayer = 64 * 64 * 8;
    EXPECT_GE(co_await hidden_products(world, Overlap::Always, kLayer), 1);
    EXPECT_EQ(co_await hidden_products(world, Overlap::Off, kLayer), 0);  // the control
    EXPECT_EQ(co_await hidden_products(world, Overlap::Auto, 0), 0);      // one latency, not two
  });
}

Task<std::ptrdiff_t> beside_gradients(World& world, Overlap overlap) {
  const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
  Mlp first(world, 8, 8, 8), second(world, 8, 8, 8);
  ParallelPlan plan;
  plan["net1"] = ColwiseParallel{};
  plan["net2"] = RowwiseParallel{};
  std::vector<Tensor> parameters;
  for (Mlp* mlp : {&first, &second}) {
    co_await parallelize_module(*mlp, mesh["tp"], plan);
    for (const Tensor& p : mlp->parameters()) parameters.push_back(p);
  }
  const DataParallel parallel(parameters, mesh, 0, {.overlap = overlap, .bucket_bytes = 600});
  const Tensor x = random(world, Shape{4, 8});
  const Tensor y = co_await first.forward(x);
  const Tensor z = co_await second.forward(y);
  const Tensor loss = sum(mul(z, z));
  const UnderWay seen(world);
  co_await backward(loss);
  std::vector<Tensor> gradients;
  for (const Tensor& p : parameters) gradients.push_back(p.grad());
  Task<void> arrived = arrival_of(std::move(gradients));
  co_await std::move(arrived);
  co_return seen.others();
}

// Each mesh dimension has its own link: gradients of the second module travel along dp while those
// of its input do along tp.
TEST(DataParallelStyles, TravelAlongOneMeshDimensionBesideCollectivesOfTheOther) {
  if (!on_cpu() || test_options(2).communicator != "local") GTEST_SKIP() << "needs a link";
  WorldOptions options = test_options(4);
  options.link = parse_link("150ms,100GB/s");
  run_ranks(options, [](World& world) -> Task<void> {
    EXPECT_GE(co_await beside_gradients(world, Overlap::Always), 1);
    EXPECT_EQ(co_await beside_gradients(world, Overlap::Off), 0);
  });
}

TEST(DataParallelStyles, GiveTheSameGradientsUnderEveryInterleaving) {
  WorldOptions options;
  options.ranks = 4;
  options.threads = 1;
  const Plan plan{.sequence_parallel = true,
                  .recomputes = true,
                  .buckets = DataParallelOptions{.bucket_bytes = 1000}};
  const auto simulated = [&](std::uint64_t seed) {
    std::vector<AllValues> got(4);
    const Program program = [&](World& world) -> Task<void> {
      got[static_cast<std::size_t>(world.rank())] = co_await trained(world, plan);
    };
    SimOptions sim;
    sim.processes = seed % 2 == 0 ? 1 : 2;
    simulate(options, program, seed, sim);
    return got;
  };
  const AllValues want = simulated(0)[1];
  const std::uint64_t first = testing::first_seed();
  const std::uint64_t count = (std::min<std::uint64_t>(testing::seeds(), 1000) + 19) / 20;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const std::vector<AllValues> got = simulated(seed);
    ASSERT_EQ(got[1], want) << testing::how_to_replay(seed);
    ASSERT_EQ(got[3], want) << testing::how_to_replay(seed);
  }
}

}  // namespace
}  // namespace coshard::testing
