// The arithmetic of a cross entropy, row by row, from what each rank found of its classes.
#include <gtest/gtest.h>

#include <cmath>

#include "styles/loss_rows.h"
#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

LossRows rows_of(const Tensor& logits, const Tensor& targets, std::int64_t first, std::int64_t all,
                 LossParallelOptions options) {
  LossRows rows;
  rows.logits = logits;
  rows.targets = targets;
  rows.rows = logits.shape()[0];
  rows.classes = logits.shape()[1];
  rows.first = first;
  rows.all_classes = all;
  rows.options = options;
  weigh_rows(rows, {});
  return rows;
}

TEST(LossRowsOf, TwoShardsOfClassesJoinToTheLossOfAll) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor logits =
        Tensor::from_values(world.device(), {2, 4}, DType::F64, {0, 1, 2, 3, 4, 3, 2, 1});
    const Tensor targets = Tensor::from_values(world.device(), {2}, DType::I64, {3, 1});
    LossParallelOptions options;
    const LossRows left = rows_of(contiguous(narrow(logits, 1, 0, 2)), targets, 0, 4, options);
    const LossRows right = rows_of(contiguous(narrow(logits, 1, 2, 2)), targets, 2, 4, options);
    EXPECT_EQ(left.statistics(), 3);
    const Tensor slots = row_statistics(left, 0, 2) + row_statistics(right, 1, 2);
    const Tensor joined = joined_statistics(left, slots);
    const double sum = std::log(1 + std::exp(-1) + std::exp(-2) + std::exp(-3));
    const std::vector<double> losses = row_losses(left, joined).to_vector();
    EXPECT_NEAR(losses[0], sum, 1e-12);
    EXPECT_NEAR(losses[1], sum + 1, 1e-12);
    EXPECT_EQ(batch_weight(left).item(), 2);
    co_return;
  });
}

TEST(LossRowsOf, IgnoredRowsCountForNothing) {
  on_ranks(1, [](World& world) -> Task<void> {
    LossParallelOptions options;
    const Tensor targets = Tensor::from_values(world.device(), {2}, DType::I64, {-100, 1});
    const LossRows rows = rows_of(full(world, {2, 2}, 1, DType::F64), targets, 0, 2, options);
    EXPECT_EQ(rows.counted.to_vector(), (std::vector<double>{0, 1}));
    EXPECT_EQ(rows.target_weight.to_vector(), (std::vector<double>{0, 1}));
    EXPECT_EQ(batch_weight(rows).item(), 1);
    co_return;
  });
}

TEST(LossRowsOf, ATargetThatIsNoClassIsRefused) {
  on_ranks(1, [](World& world) -> Task<void> {
    const auto of = [&](double target) {
      return Tensor::from_values(world.device(), {1}, DType::I64, {target});
    };
    EXPECT_NO_THROW(check_targets(of(3), 4, -100));
    EXPECT_NO_THROW(check_targets(of(-100), 4, -100));
    for (const double target : {4.0, -1.0}) {
      const auto checked = [&] {
        check_targets(of(target), 4, -100);
        world.device()->synchronize();  // where a device that queues its work says so
      };
      EXPECT_THROW(checked(), Error) << target;
    }
    co_return;
  });
}

}  // namespace
}  // namespace coshard::testing
