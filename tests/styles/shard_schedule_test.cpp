// Groups of sharded parameters: what runs under their collectives, and the order of these.
#include <algorithm>
#include <map>

#include "tests/styles/sharded_layers.h"
#include "tests/support/hidden_products.h"

namespace coshard::testing {
namespace {

Task<int> hidden_by_groups_in_forward(World& world, Overlap overlap) {
  Layers model(world);
  shard_layers(model, dp_line(world), {.overlap = overlap});
  const NoGradGuard no_grad;
  const Tensor x = rows_of(world, 0, 0);
  co_await discard(model.forward(x));  // which shows the order
  const HiddenProducts hidden(world);
  co_await discard(model.forward(x));
  co_return hidden.count();
}

Task<int> hidden_by_groups_in_backward(World& world, Overlap overlap, bool reshard,
                                       bool recomputes) {
  Layers model(world);
  shard_layers(model, dp_line(world), {.reshard_after_forward = reshard, .overlap = overlap});
  for (std::size_t i = 0; i < model.layers.size(); ++i) model.layers[i].set_recompute(recomputes);
  const Tensor y = co_await model.forward(rows_of(world, 0, 0));
  const Tensor loss = mean(mul(y, y));
  const HiddenProducts hidden(world);
  co_await backward(loss);
  co_return hidden.count();
}

// Two products in a layer's forward, four in its backward, three in that of the first.
TEST(ShardSchedule, ComputesUnderGathersAndReductions) {
  on_slow_ranks(2, [](World& world) -> Task<void> {
    EXPECT_EQ(co_await hidden_by_groups_in_forward(world, Overlap::Auto), 4);  // not the last layer
    EXPECT_EQ(co_await hidden_by_groups_in_forward(world, Overlap::Off), 0);
    for (const bool reshard : {false, true}) {
      // Without gathers the last layer, whose backward is first, has nothing to run under but the
      // reduction of what the model itself has.
      EXPECT_EQ(co_await hidden_by_groups_in_backward(world, Overlap::Auto, reshard, false), 11);
      EXPECT_EQ(co_await hidden_by_groups_in_backward(world, Overlap::Off, reshard, false), 0);
    }
    EXPECT_EQ(co_await hidden_by_groups_in_backward(world, Overlap::Auto, true, true), 17);
    EXPECT_EQ(co_await hidden_by_groups_in_backward(world, Overlap::Off, true, true), 0);
  });
}

// By the clock: products that ran while a transfer of this label was under way.
class DuringTransfers final : public Observer {
 public:
  DuringTransfers(World& world, std::string_view label) : world_(world), label_(label) {
    world.add_observer(this);
  }
  ~DuringTransfers() override { world_.remove_observer(this); }
  void issued(const CommEvent& event, std::int64_t now) override { begun_[event.id] = now; }
  void ready(const CommEvent& event, std::int64_t, std::int64_t done, std::int64_t) override {
    if (event.label == label_) transfers_.emplace_back(begun_[event.id], done);
  }
  void computed(std::string_view, ComputeClass what, std::int64_t begin,
                std::int64_t end) override {
    if (what == ComputeClass::Gemm) products_.emplace_back(begin, end);
  }
  std::ptrdiff_t count() const {
    return std::ranges::count_if(products_, [this](const auto& product) {
      return std::ranges::any_of(transfers_, [&product](const auto& transfer) {
        return product.first < transfer.second && transfer.first < product.second;
      });
    });
  }

 private:
  using Span = std::pair<std::int64_t, std::int64_t>;
  World& world_;
  std::string_view label_;
  std::map<std::uint64_t, std::int64_t> begun_;
  std::vector<Span> transfers_, products_;
};

Task<std::ptrdiff_t> during_gathers(World& world, Overlap overlap) {
  Layers model(world);
  shard_layers(model, dp_line(world), {.overlap = overlap});
  const NoGradGuard no_grad;
  const Tensor x = rows_of(world, 0, 0);
  co_await discard(model.forward(x));
  const DuringTransfers seen(world, "parameters");
  co_await discard(model.forward(x));
  co_return seen.count();
}

// The link takes far longer than a machine that is busy takes for a layer.
TEST(ShardSchedule, ComputesDuringTransfers) {
  if (!on_cpu() || test_options(2).communicator != "local") GTEST_SKIP() << "needs a link";
  WorldOptions options = test_options(2);
  options.link = parse_link("100ms,100GB/s");
  run_ranks(options, [](World& world) -> Task<void> {
    EXPECT_GE(co_await during_gathers(world, Overlap::Auto), 2);
    EXPECT_EQ(co_await during_gathers(world, Overlap::Off), 0);
  });
}

struct Again : Layers {
  using Layers::Layers;
  Task<Tensor> run(Tensor x) override {
    for (const std::size_t layer : {0, 1, 0, 2}) x = co_await layers[layer].forward(x);
    co_return x;
  }
};

// In backward the middle layer is done when the first one runs again, and is not gathered for it.
TEST(ShardSchedule, GathersNothingAheadThatIsDone) {
  on_ranks(2, [](World& world) -> Task<void> {
    Again model(world);
    shard_layers(model, dp_line(world), {});
    for (int time = 0; time < 2; ++time) {
      const Counted run = co_await run_counted(world, model, rows_of(world, 0, 0));
      EXPECT_EQ(run.backward, (Issued{.all_gather = 4, .reduce_scatter = 3}));
    }
  });
}

// What this rank issues, in order.
class IssuedLog final : public Observer {
 public:
  explicit IssuedLog(World& world) : world_(world) { world.add_observer(this); }
  ~IssuedLog() override { world_.remove_observer(this); }
  void issued(const CommEvent& event, std::int64_t) override {
    all.push_back(str_cat(event.label, " ", event.bytes));
  }
  std::vector<std::string> all;

 private:
  World& world_;
};

// Sizes tell the groups apart: the model's scale, then layers of 4, 5 and 6 hidden features.
struct Growing : Module {
  explicit Growing(World& world) {
    register_module("layers", layers);
    for (std::int64_t i = 0; i < 3; ++i) layers.append(std::make_shared<Mlp>(world, 10, 4 + i, 10));
  }
  Task<Tensor> run(Tensor x) override {
    for (std::size_t i = 0; i < layers.size(); ++i) x = co_await layers[i].forward(x);
    co_return x;
  }
  ModuleList<Mlp> layers;
};

TEST(GroupsOfShards, GatherAheadInTheOrderOfTheLastForwardAndInReverse) {
  std::vector<std::string> orders[2];
  on_ranks(2, [&orders](World& world) -> Task<void> {
    Growing model(world);
    const DeviceMesh mesh = dp_line(world);
    for (std::size_t i = 0; i < model.layers.size(); ++i) fully_shard(model.layers[i], mesh);
    fully_shard(model, mesh);
    const Tensor x = rows_of(world, 0, 0);
    co_await discard(model.forward(x));
    const IssuedLog log(world);
    const Tensor y = co_await model.forward(x);
    const Tensor loss = mean(mul(y, y));
    co_await backward(loss);
    orders[world.rank()] = log.all;
  });
  ASSERT_EQ(orders[0].size(), 9U);
  std::vector<std::string> sizes(orders[0].begin(), orders[0].begin() + 3);  // of the layers
  const auto gradients_of = [&](int layer) {
    std::string text = sizes[static_cast<std::size_t>(layer)];
    return text.replace(0, text.find(' '), "gradients");
  };
  const std::vector<std::string> want = {sizes[0], sizes[1],        sizes[2],         // forward
                                         sizes[2], sizes[1],        gradients_of(2),  // backward
                                         sizes[0], gradients_of(1), gradients_of(0)};
  EXPECT_NE(sizes[0], sizes[1]);
  EXPECT_EQ(orders[0], want);
  EXPECT_EQ(orders[1], orders[0]);
}

}  // namespace
}  // namespace coshard::testing
