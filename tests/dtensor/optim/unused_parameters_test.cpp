// DataParallel where ranks reach other parameters: refused, or reduced with zeros for what is
// missing.
#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/optim/data_parallel.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include "tests/support/ends.h"
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::End;
using testing::ends_of;
using testing::on_ranks;
using testing::quick_options;
using Values = std::vector<double>;

constexpr std::int64_t kExperts = 4;

struct Experts {
  Experts() {
    for (std::int64_t e = 0; e < kExperts; ++e)
      parameters.push_back(full({3}, static_cast<double>(e + 1), DType::F64, true));
    parameters.push_back(ones({2, 2}, DType::F64, true));  // every rank reaches it
  }
  std::vector<Tensor> parameters;
};

// Each rank has its own experts in each step; the last but one is nobody's.
bool uses(int rank, int step, std::int64_t expert) {
  return expert < kExperts - 1 && (rank + step + expert) % 2 == 0;
}

Tensor loss_of(const Experts& experts, int rank, int step) {
  Tensor loss = sum(mul(experts.parameters.back(), rank + 1.0));
  for (std::int64_t e = 0; e < kExperts; ++e)
    if (const Tensor& w = experts.parameters[static_cast<std::size_t>(e)]; uses(rank, step, e))
      loss = loss + sum(mul(mul(w, w), rank + 2.0));
  return loss;
}

Task<void> walk_of_each(Tensor loss) {
  Task<void> pass = backward(loss);
  co_await std::move(pass);
}

Task<void> arrive(const std::vector<Tensor>& parameters) {
  std::vector<Tensor> all;
  for (const Tensor& p : parameters)
    if (p.grad().defined()) all.push_back(p.grad());
  Task<void> arrived = arrival_of(std::move(all));
  co_await std::move(arrived);
}

// Of one element; every rank knows what the others do.
double expected(int ranks, int step, std::int64_t expert, Reduce reduce) {
  double total = 0;
  for (int r = 0; r < ranks; ++r) {
    if (expert == kExperts)
      total += r + 1.0;
    else if (uses(r, step, expert))
      total += 2.0 * static_cast<double>(expert + 1) * (r + 2.0);
  }
  return reduce == Reduce::Avg ? total / ranks : total;
}

TEST(UnusedParameters, CountAsZerosWhereARankDoesNotReachThem) {
  for (const int ranks : {2, 3})
    for (const Reduce reduce : {Reduce::Sum, Reduce::Avg})
      for (const std::int64_t bytes : {0, 1})
        on_ranks(ranks, [=](World& world) -> Task<void> {
          const Experts experts;
          const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"dp"});
          const DataParallel parallel(
              experts.parameters, mesh, 0,
              {.reduce = reduce, .find_unused_parameters = true, .bucket_bytes = bytes});
          for (int step = 0; step < 3; ++step) {
            for (const Tensor& p : experts.parameters) p.set_grad({});
            co_await walk_of_each(loss_of(experts, world.rank(), step));
            co_await arrive(experts.parameters);
            for (std::int64_t e = 0; e <= kExperts; ++e) {
              const Tensor& p = experts.parameters[static_cast<std::size_t>(e)];
              if (e == kExperts - 1) {
                EXPECT_FALSE(p.grad().defined()) << "no rank reaches it";
                continue;
              }
              const double want = expected(world.size(), step, e, reduce);
              if (want == 0) {
                EXPECT_FALSE(p.grad().defined()) << e;
              } else {
                EXPECT_EQ(p.grad().to_vector(), Values(static_cast<std::size_t>(p.numel()), want))
                    << e << " in step " << step;
              }
            }
          }
        });
}

TEST(UnusedParameters, TrainAlikeOnAllRanks) {
  on_ranks(3, [](World& world) -> Task<void> {
    const Experts experts;
    const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"dp"});
    DataParallel parallel(experts.parameters, mesh, 0, {.find_unused_parameters = true});
    AdamW optimizer(experts.parameters, {.lr = 0.1});
    for (int step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      for (int batch = 0; batch < 2; ++batch) {  // accumulates
        parallel.set_requires_gradient_sync(batch == 1);
        co_await walk_of_each(loss_of(experts, world.rank(), step + batch));
      }
      Task<void> stepped = optimizer.step();
      co_await std::move(stepped);
    }
    for (const Tensor& p : experts.parameters) {
      const DTensor held = from_local(p.detach(), mesh, Replicate(), {.run_check = false});
      const DTensor most = from_local(p.detach(), mesh, Partial(Reduce::Max));
      EXPECT_EQ(most.full_tensor().to_vector(), held.to_local().to_vector());
    }
  });
}

TEST(UnusedParameters, AreReducedByABackwardInPlace) {
  on_ranks(2, [](World& world) -> Task<void> {
    const Experts experts;
    const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"dp"});
    const DataParallel parallel(experts.parameters, mesh, 0, {.find_unused_parameters = true});
    run_backward(loss_of(experts, world.rank(), 0));
    co_await arrive(experts.parameters);
    for (const std::int64_t e : {0, 1, 2})
      EXPECT_EQ(experts.parameters[static_cast<std::size_t>(e)].grad().to_vector(),
                Values(3, expected(2, 0, e, Reduce::Avg)));
  });
}

TEST(UnusedParameters, AreAnErrorWithoutTheOption) {
  const auto program = [](World& world) -> Task<void> {
    const Experts experts;
    const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"dp"});
    const DataParallel parallel(experts.parameters, mesh, 0);
    co_await walk_of_each(loss_of(experts, world.rank(), 0));
    co_await arrive(experts.parameters);
    Task<Tensor> norm = clip_grad_norm(experts.parameters, 1.0);
    co_await std::move(norm);
    static_cast<void>(zeros(mesh, Shard(0), {4}).full_tensor());
  };
  for (const End& end : ends_of(quick_options(2), program))
    EXPECT_TRUE(end.is(ErrorKind::CommFailed)) << end;
}

TEST(UnusedParameters, OfDTensorsAreRefused) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"dp"});
    const DTensor w = ones(mesh, Replicate(), {2}, DType::F64, true);
    EXPECT_THROW(DataParallel({w}, mesh, 0, {.find_unused_parameters = true}), Error);
    co_return;
  });
}

}  // namespace
}  // namespace coshard
