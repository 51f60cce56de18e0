// Styles whose linear layers overlap: losses and gradients as without, and what runs under what.
#include <set>

#include <coshard/simulate.h>
#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

// One training step of the Transformer.
struct Stepped {
  double loss = 0;
  std::vector<std::vector<double>> gradients;
  Issued issued;
};
Task<Stepped> step_of(World& world, bool sequence_parallel, Overlap overlap) {
  manual_seed(5);
  nn::TransformerConfig config = tiny_transformer();
  config.dtype = DType::F64;
  nn::Transformer model(config, world);
  const DeviceMesh mesh = line(world);
  const ParallelizeOptions options{.overlap = overlap};
  co_await parallelize_module(model, mesh, nn::transformer_plan(sequence_parallel), options);
  const Tensor tokens = integers(world, Shape{2, config.seq}, config.vocab);
  CountingObserver counter(world);
  const Tensor logits = co_await model.forward(tokens);
  Stepped stepped;
  const Tensor loss = co_await loss_parallel_cross_entropy(logits, tokens);
  stepped.issued = take(counter);
  stepped.loss = full_tensor(loss.detach()).item();
  co_await backward(loss);
  for (const Tensor& p : model.parameters())
    stepped.gradients.push_back(
        (p.grad().is_distributed() ? full_tensor(p.grad()) : p.grad()).to_vector());
  co_return stepped;
}

void expect_same_step(const Stepped& got, const Stepped& want) {
  EXPECT_NEAR(got.loss, want.loss, 1e-12);
  ASSERT_EQ(got.gradients.size(), want.gradients.size());
  for (std::size_t p = 0; p < want.gradients.size(); ++p)
    for (std::size_t i = 0; i < want.gradients[p].size(); ++i)
      ASSERT_NEAR(got.gradients[p][i], want.gradients[p][i], 1e-12) << "parameter " << p;
}

TEST(OverlappedStyles, TrainATransformerAsThePlainOnesDo) {
  for (const int ranks : {2, 4})
    for (const bool sequence_parallel : {false, true})
      on_ranks(ranks, [sequence_parallel](World& world) -> Task<void> {
        const Stepped plain = co_await step_of(world, sequence_parallel, Overlap::Off);
        const Stepped overlapped = co_await step_of(world, sequence_parallel, Overlap::Always);
        expect_same_step(overlapped, plain);
        if (sequence_parallel) {  // each reduce_scatter of two layers has become all_to_alls
          EXPECT_EQ(overlapped.issued.reduce_scatter, plain.issued.reduce_scatter - 4);
          EXPECT_EQ(overlapped.issued.other, plain.issued.other + 4 * (world.size() - 1));
          EXPECT_EQ(overlapped.issued.all_gather, plain.issued.all_gather);
        } else {  // each all_reduce has become two
          EXPECT_EQ(overlapped.issued.all_reduce, plain.issued.all_reduce + 4);
        }
      });
}

TEST(OverlappedStyles, TakeTheirOwnChoiceBeforeThatOfThePlan) {
  on_ranks(2, [](World& world) -> Task<void> {
    Mlp mlp(world);
    ParallelPlan plan;
    plan["net1"] = ColwiseParallel{};
    plan["net2"] = RowwiseParallel{.overlap = Overlap::Off};
    const ParallelizeOptions options{.overlap = Overlap::Always};
    co_await parallelize_module(mlp, line(world), plan, options);
    EXPECT_EQ(mlp.net1.overlapping().overlap, Overlap::Always);
    EXPECT_EQ(mlp.net2.overlapping().overlap, Overlap::Off);
    EXPECT_EQ(mlp.net2.overlapping().target, Placement(Replicate()));
    EXPECT_CONTAINS(str_cat(RowwiseParallel{.overlap = Overlap::Off}), "overlap=off");
  });
}

TEST(OverlappedStyles, LeaveAModuleAsItWasIfThePlanFails) {
  on_ranks(2, [](World& world) -> Task<void> {
    Mlp mlp(world);
    ParallelPlan plan;
    plan["net1"] = ColwiseParallel{};
    plan["net2"] = SequenceParallel{};
    plan[""] = ColwiseParallel{};
    const ParallelizeOptions options{.overlap = Overlap::Always};
    const std::string text = co_await error_of(parallelize_module(mlp, line(world), plan, options));
    EXPECT_EQ(mlp.net1.overlapping().overlap, Overlap::Off) << text;
  });
}

// Products that this rank computes between the issue of a collective and the end of its wait for it.
class HiddenProducts final : public Observer {
 public:
  explicit HiddenProducts(World& world) : world_(world) { world.add_observer(this); }
  ~HiddenProducts() override { world_.remove_observer(this); }
  void issued(const CommEvent& event, std::int64_t) override { under_way_.insert(event.id); }
  void ready(const CommEvent& event, std::int64_t, std::int64_t, std::int64_t) override {
    under_way_.erase(event.id);
  }
  void computing(std::string_view, ComputeClass what, const DescribeInputs&) override {
    if (what == ComputeClass::Gemm && !under_way_.empty()) ++count_;
  }
  int count() const { return count_; }

 private:
  World& world_;
  std::set<std::uint64_t> under_way_;
  int count_ = 0;
};

Task<int> hidden_products(World& world, Placement input, Placement output, Overlap overlap) {
  Mlp mlp(world, 64, 64, 64);
  ParallelPlan plan;
  plan["net1"] = ColwiseParallel{.input_layouts = input};
  plan["net2"] = RowwiseParallel{.output_layouts = output};
  const ParallelizeOptions options{.overlap = overlap};
  co_await parallelize_module(mlp, line(world), plan, options);
  const NoGradGuard no_grad;
  const Tensor x = random(world, Shape{32, 64});
  const HiddenProducts hidden(world);
  const Tensor y = co_await mlp.forward(x);
  co_return hidden.count();
}

// In virtual time, which computing does not take: the collectives of no machine end before.
void on_slow_ranks(const std::function<Task<void>(World&)>& body) {
  WorldOptions options;
  options.ranks = 2;
  options.link = parse_link("30ms,100GB/s");
  for (std::uint64_t seed = 0; seed < 3; ++seed)
    EXPECT_NO_THROW(simulate(options, body, seed)) << "seed " << seed;
}

TEST(OverlappedStyles, ComputeUnderTheGatherBeforeThemAndTheReductionAfterThem) {
  on_slow_ranks([](World& world) -> Task<void> {
    // net1: the own shard under the gather. net2: the own rows under what is sent.
    EXPECT_EQ(co_await hidden_products(world, Shard(0), Shard(0), Overlap::Always), 2);
    EXPECT_EQ(co_await hidden_products(world, Replicate(), Replicate(), Overlap::Always), 1);
    // The control: nothing runs under a collective.
    EXPECT_EQ(co_await hidden_products(world, Shard(0), Shard(0), Overlap::Off), 0);
    EXPECT_EQ(co_await hidden_products(world, Replicate(), Replicate(), Overlap::Off), 0);
  });
}

TEST(OverlappedStyles, ArePlainOnALinkThatCostsMoreByPieces) {
  on_slow_ranks([](World& world) -> Task<void> {  // 30 ms for each piece
    EXPECT_EQ(co_await hidden_products(world, Replicate(), Replicate(), Overlap::Auto), 0);
  });
}

}  // namespace
}  // namespace coshard::testing
