#include "dtensor/optim/gradient_buckets.h"

#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape/hooks.h>
#include "tests/dtensor/optim/parameters.h"
#include "tests/dtensor/optim/small_net.h"

namespace coshard {
namespace {

using testing::counting;
using testing::on_ranks;
using testing::parameter;
using testing::refusal_of;
using testing::SmallNet;

constexpr std::int64_t kMiB = 1 << 20;

TEST(BucketSizes, AreAnEighthBetweenOneAndTwentyFiveMiBTheFirstAQuarter) {
  const auto expect = [](std::int64_t total, std::int64_t first, std::int64_t other) {
    const BucketSizes sizes = bucket_sizes(total, 2, std::nullopt);
    EXPECT_EQ(sizes.first, first) << total;
    EXPECT_EQ(sizes.other, other) << total;
  };
  expect(100, kMiB / 4, kMiB);
  expect(8 * kMiB, kMiB / 4, kMiB);
  expect(16 * kMiB, kMiB / 2, 2 * kMiB);
  expect(80 * kMiB, kMiB, 10 * kMiB);
  expect(4000 * kMiB, kMiB, 25 * kMiB);
}

// n buckets pay n - 1 latencies more than one: at most 2 % of the time on the link.
TEST(BucketSizes, AreLargerOnALinkOfLongLatency) {
  const std::int64_t total = 16 * kMiB;  // 16.8 ms at 1 GB/s, between 2 ranks
  const auto expect = [](const BucketSizes& sizes, std::int64_t first, std::int64_t other) {
    EXPECT_EQ(sizes.first, first);
    EXPECT_EQ(sizes.other, other);
  };
  expect(bucket_sizes(total, 2, Link{20, 1000}), kMiB / 2, 2 * kMiB);     // 17 would do
  expect(bucket_sizes(total, 2, Link{100, 1000}), total / 4, total / 4);  // 3 x 0.1 ms
  expect(bucket_sizes(total, 2, Link{1000, 1000}), total, total);
  expect(bucket_sizes(100 * kMiB, 2, Link{1e6, 1000}), 25 * kMiB, 25 * kMiB);
  // On which they take longer than integers hold.
  expect(bucket_sizes(total, 2, Link{20, 1e-300}), kMiB / 2, 2 * kMiB);
  expect(bucket_sizes(total, 2, Link{1e300, 1000}), total, total);
  // Between 4 ranks, 1.5 times as long on it.
  expect(bucket_sizes(total, 4, Link{100, 1000}), kMiB, 16 * kMiB / 3);
}

TEST(BucketSizes, GetSmallerTowardsTheEnd) {
  const BucketSizes sizes{kMiB / 2, 2 * kMiB};
  EXPECT_EQ(sizes.limit(16 * kMiB, true), kMiB / 2);
  EXPECT_EQ(sizes.limit(15 * kMiB, false), 2 * kMiB);
  EXPECT_EQ(sizes.limit(3 * kMiB, false), 3 * kMiB / 2);
  EXPECT_EQ(sizes.limit(kMiB / 2, false), kMiB / 2);
}

// Which buckets have been sent is what the observer sees while products are still to come.
class Order final : public Observer {
 public:
  explicit Order(World& world) : world_(world) { world.add_observer(this); }
  ~Order() override { world_.remove_observer(this); }
  void issued(const CommEvent& event, std::int64_t) override {
    if (event.kind == CollectiveKind::AllReduce) text += 's';
  }
  void computed(std::string_view, ComputeClass what, std::int64_t, std::int64_t) override {
    if (what == ComputeClass::Gemm) text += 'g';
  }
  std::string text;

 private:
  World& world_;
};

Task<std::string> order_of(World& world, Overlap overlap) {
  const SmallNet net(world);
  const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"dp"});
  const DataParallel parallel(net.parameters, mesh, 0, {.overlap = overlap, .bucket_bytes = 1});
  const Tensor loss = net.loss(0);
  Order seen(world);
  co_await backward(loss);
  co_return seen.text;
}

TEST(GradientBuckets, LeaveWhileProductsOfBackwardAreStillToCome) {
  on_ranks(2, [](World& world) -> Task<void> {
    for (const Overlap overlap : {Overlap::Auto, Overlap::Always}) {
      const std::string order = co_await order_of(world, overlap);
      EXPECT_EQ(order, "ggggsggsgss") << overlap;
    }
    const std::string order = co_await order_of(world, Overlap::Off);
    EXPECT_EQ(order, "gggggggssss");
  });
}

// A place that another operator has taken is not offered again; what comes meanwhile is kept aside.
TEST(GradientBuckets, OfferAPlaceOnceInEachBackward) {
  on_ranks(2, [](World& world) -> Task<void> {
    Tensor w = counting(world, {64, 64});
    w.set_requires_grad(true);
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"dp"});
    const DataParallel parallel({w}, mesh, 0);
    for (int step = 0; step < 2; ++step) {
      w.set_grad(Tensor());
      const Tensor x = counting(world, {1, 64});
      const Tensor loss = sum(linear(x, w));
      const std::shared_ptr<GradCollector> collector = w.grad_meta()->collector.lock();
      EXPECT_EQ(collector->place(*w.grad_meta()).defined(), step == 1);  // built by then
      EXPECT_FALSE(collector->place(*w.grad_meta()).defined());
      co_await backward(loss);
      EXPECT_FALSE(collector->place(*w.grad_meta()).defined());  // there is a gradient
      EXPECT_EQ(w.grad().to_vector()[64], 1);
      EXPECT_EQ(w.grad().to_vector()[65], 2);
      const auto own = static_cast<std::int64_t>(sizeof(double)) * 64 * 64;
      EXPECT_EQ(parallel.bucket_bytes(), std::vector<std::int64_t>{own});
    }
  });
}

// The gradients of `a` and `b` after a backward of `a`, within which a hook adds to one of them.
struct HookCase {
  bool
      of_b;  // which the outer backward does not reach; otherwise of `a`, which is complete by then
  Overlap overlap;
};

Task<std::vector<double>> with_backward_in_a_hook(World& world, HookCase c) {
  const DeviceMesh mesh = init_device_mesh(world, {2}, {"dp"});
  const Tensor a = counting(world, {1}).set_requires_grad(true);
  const Tensor b = counting(world, {1}).set_requires_grad(true);
  DataParallel parallel({a, b}, mesh, 0, {.overlap = c.overlap});
  const Tensor x = mul(counting(world, {1}).set_requires_grad(true), 2.0);
  const Tensor extra = sum(mul(c.of_b ? b : a, 1.0 + world.rank())), loss = sum(mul(x, a));
  register_hook(x, [&](const Tensor&) {
    parallel.set_requires_gradient_sync(false);
    run_backward(extra);
    parallel.set_requires_gradient_sync(true);
    return Tensor();
  });
  co_await backward(loss);
  std::vector<double> gradients{a.grad().to_vector()[0]};
  if (c.of_b) gradients.push_back(b.grad().to_vector()[0]);
  co_return gradients;
}

TEST(GradientBuckets, TakeTheGradientsOfAHooksBackwardUntilTheyAreSent) {
  on_ranks(2, [](World& world) -> Task<void> {
    const std::vector<double> a = co_await with_backward_in_a_hook(world, {false, Overlap::Off});
    EXPECT_EQ(a, (std::vector<double>{3.5}));
    const std::vector<double> b = co_await with_backward_in_a_hook(world, {true, Overlap::Off});
    EXPECT_EQ(b, (std::vector<double>{2, 1.5}));
  });
}

// ---- errors ----

TEST(DataParallelRefuses, TheGradientsOfAHooksBackwardOnceTheirBucketIsSent) {
  for (const bool of_b : {false, true})
    for (const Overlap overlap : {Overlap::Auto, Overlap::Always})
      on_ranks(2, [=](World& world) -> Task<void> {
        std::string text;
        try {
          co_await with_backward_in_a_hook(world, {of_b, overlap});
        } catch (const Error& error) {
          text = error.what();
        }
        EXPECT_NE(text.find(str_cat("a gradient of parameter ", of_b ? 1 : 0,
                                    " of a DataParallel arrived after its bucket (0 of 1) had "
                                    "been sent")),
                  std::string::npos)
            << text;
      });
}

std::string refused(const std::function<void()>& make) {
  try {
    make();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput) << error.what();
    return error.what();
  }
  return "nothing was thrown";
}

void expect_text(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(DataParallelRefuses, WhatItCannotReduce) {
  on_ranks(2, [](World& world) -> Task<void> {
    const SmallNet net(world);
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"dp"});
    const auto make = [&](std::vector<Tensor> parameters, int dim, Reduce reduce) {
      return refused(
          [&] { const DataParallel made(std::move(parameters), mesh, dim, {.reduce = reduce}); });
    };
    expect_text(make(net.parameters, 1, Reduce::Sum), "dimension 1 is out of range for mesh dp=2");
    expect_text(make(net.parameters, 0, Reduce::Max), "reduce must be Sum or Avg, got max");
    expect_text(make({}, 0, Reduce::Sum), "none of 0 parameters requires a gradient");
    expect_text(make({add(net.parameters[0], 1.0)}, 0, Reduce::Sum),
                "DataParallel: parameter 0 (f32[7,5]) is not a leaf");
    const DataParallel parallel(net.parameters, mesh, 0);
    expect_text(make({net.parameters[2]}, 0, Reduce::Sum),
                "parameter 0 (f32[3,7]) belongs to another DataParallel");
    co_return;
  });
}

TEST(DataParallelRefuses, ShardsAlongItsDimension) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"dp"});
    const Tensor w = parameter(world, mesh, {4}, Shard(0));
    const DataParallel parallel({w}, mesh, 0);
    const Tensor loss = sum(mul(w, w));
    const std::string text = co_await refusal_of(backward(loss));
    expect_text(text,
                "DataParallel along 'dp' of dp=2: the gradient of parameter 0 is f64[4] S(0)");
  });
}

TEST(DataParallelRefuses, CreateGraphTwoBackwardsAtOnceAndAStaleGradientBesideANewOne) {
  on_ranks(2, [](World& world) -> Task<void> {
    const SmallNet net(world);
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"dp"});
    const DataParallel parallel(net.parameters, mesh, 0);
    const Tensor loss = net.loss(0);
    const BackwardOptions graph{.create_graph = true};
    std::string text = co_await refusal_of(backward(loss, graph));
    expect_text(text, "backward: create_graph, but the gradient of parameter 0 of a DataParallel");
    net.zero_grad();
    co_await net.run(0);
    const Tensor one = sum(net.parameters[4]);  // in the bucket with the others
    text = co_await refusal_of(backward(one));
    expect_text(text, "which was summed before and would be again");
    const std::shared_ptr<GradCollector> collector =
        one.grad_meta()->producer->inputs[0]->collector.lock();
    const int reached[] = {4};
    EXPECT_TRUE(collector->begin(reached));
    text = refused([&] { collector->begin(reached); });
    expect_text(text, "another backward is still reducing gradients of the same DataParallel");
    collector->give_up();
    EXPECT_TRUE(collector->begin(reached));
    collector->give_up();
  });
}

TEST(DataParallelRefuses, ParametersThatWereReplaced) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"dp"});
    Tensor w = counting(world, {2}), other = counting(world, {2});
    for (Tensor* leaf : {&w, &other}) leaf->set_requires_grad(true);
    const DataParallel parallel({w, other}, mesh, 0);
    const Tensor loss = sum(other);
    const Tensor taped = mul(w, 2.0);
    w.set_grad_meta(taped.grad_meta());
    const std::string text = co_await refusal_of(backward(loss));
    expect_text(text, "was replaced in its module by mul_scalar; create it afterwards");
  });
}

// On rank 1, parameter `missing` is not read in the second step (3: all are).
Task<void> miss_one(World& world, std::size_t missing, std::int64_t bytes) {
  const DeviceMesh mesh = init_device_mesh(world, {2}, {"dp"});
  std::vector<Tensor> w;
  for (int i = 0; i < 3; ++i) w.push_back(counting(world, {4}).set_requires_grad(true));
  const DataParallel parallel(w, mesh, 0, {.bucket_bytes = bytes});
  SGD optimizer(w);
  for (int step = 0; step < 2; ++step) {
    optimizer.zero_grad();
    Tensor y = counting(world, {4});
    for (std::size_t i = 0; i < 3; ++i)
      if (i != missing || world.rank() == 0 || step == 0) y = mul(y, w[i]);
    const Tensor loss = sum(y);
    co_await backward(loss);
    co_await optimizer.step();
  }
  const DTensor terms = ones(mesh, Partial(), {1});
  co_await terms.redistribute(Replicate());
}

// What ends the program on both ranks; "" if nothing.
std::vector<std::string> ends_of(std::size_t missing, std::int64_t bytes) {
  std::vector<std::string> ends(2);
  try {
    on_ranks(2, [&](World& world) -> Task<void> {
      try {
        Task<void> program = miss_one(world, missing, bytes);
        co_await std::move(program);
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::CommFailed) << error.what();
        ends[static_cast<std::size_t>(world.rank())] = error.what();
        throw;
      }
    });
  } catch (const Error&) {
  }
  return ends;
}

TEST(DataParallelRefuses, AGradientThatOneRankMissesOnAllRanks) {
  for (const std::int64_t bytes : {0, 1}) {
    for (const std::string& end : ends_of(3, bytes)) EXPECT_EQ(end, "");
    for (const std::size_t missing : {0, 1, 2})
      for (const std::string& end : ends_of(missing, bytes)) {
        expect_text(end, "rank 1 last ");
        if (bytes == 0)
          expect_text(end, str_cat("with no gradient for parameter ", missing, " of 3"));
      }
  }
}

}  // namespace
}  // namespace coshard
