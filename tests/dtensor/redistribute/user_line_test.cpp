// Errors of collectives name the line of the program that asked for them.
#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/redistribute/sums.h"
#include "tests/support/ends.h"
#include "tests/support/ranks.h"

namespace coshard::user_line {
namespace {
using testing::counting;
using testing::End;
using testing::ends_of;
using testing::quick_options;
using testing::term;

// Each asks for a collective in its only line, and is told which that is.
using Asks = Task<void> (*)(World& world, DeviceMesh mesh, int& line);

Task<void> member(World& world, DeviceMesh mesh, int& line) {
  const DTensor x = term(world, mesh, 1);
  line = __LINE__ + 1;
  const Redistribution issued = x.redistribute(Replicate());
  co_await issued;
}
Task<void> free_function(World& world, DeviceMesh mesh, int& line) {
  const DTensor x = term(world, mesh, 1);
  line = __LINE__ + 1;
  const Redistribution issued = redistribute(x, Layout(Replicate()));
  co_await issued;
}
Task<void> whole(World& world, DeviceMesh mesh, int& line) {
  const DTensor x = term(world, mesh, 1);
  line = __LINE__ + 1;
  full_tensor(x);
  co_return;
}
Task<void> distribution(World& world, DeviceMesh mesh, int& line) {
  const Tensor x = counting(world, {4});
  line = __LINE__ + 1;
  distribute_tensor(x, mesh, Shard(0)).wait();
  co_return;
}
Task<void> operator_on_it(World& world, DeviceMesh mesh, int& line) {
  const DTensor x = term(world, mesh, 1);
  line = __LINE__ + 1;
  const DTensor y = x.redistribute(Replicate()).tensor();
  add(y, 1).item();
  co_return;
}

Task<void> alone(World& world, Asks asks, int& line) {
  const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
  if (world.rank() == 1) co_return;  // rank 0 waits for it in vain
  Task<void> asking = asks(world, mesh, line);
  co_await std::move(asking);
}

void expect_the_line_is_named(Asks asks) {
  int line = 0;
  const std::vector<End> ends =
      ends_of(quick_options(2), [&](World& world) { return alone(world, asks, line); });
  EXPECT_TRUE(ends[0].is(ErrorKind::CommFailed)) << ends[0];
  EXPECT_TRUE(ends[0].names(str_cat("user_line_test.cpp:", line))) << line << ": " << ends[0];
}

TEST(UserLine, OfTheMemberRedistribute) { expect_the_line_is_named(member); }
TEST(UserLine, OfTheFunctionRedistribute) { expect_the_line_is_named(free_function); }
TEST(UserLine, OfFullTensor) { expect_the_line_is_named(whole); }
TEST(UserLine, OfDistributeTensor) { expect_the_line_is_named(distribution); }
TEST(UserLine, OfARedistributeThatAnOperatorWaitsFor) { expect_the_line_is_named(operator_on_it); }

// Rank 1 calls another collective than rank 0.
Task<void> two_lines(World& world, int& first, int& second) {
  const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
  const DTensor x = term(world, mesh, 1);
  const DTensor cut = distribute_tensor(counting(world, {4}), mesh, Shard(0), std::nullopt);
  if (world.rank() == 0) {
    first = __LINE__ + 1;
    const Redistribution issued = x.redistribute(Replicate());
    co_await issued;
  } else {
    second = __LINE__ + 1;
    const Redistribution issued = cut.redistribute(Replicate());
    co_await issued;
  }
}

TEST(UserLine, OfBothRanksThatDisagree) {
  int first = 0, second = 0;
  const std::vector<End> ends =
      ends_of(quick_options(2), [&](World& world) { return two_lines(world, first, second); });
  for (const End& end : ends) {
    EXPECT_TRUE(end.is(ErrorKind::CommFailed)) << end;
    EXPECT_TRUE(end.names(str_cat("user_line_test.cpp:", first))) << end;
    EXPECT_TRUE(end.names(str_cat("user_line_test.cpp:", second))) << end;
  }
}

// What a backward pass and an optimizer issue for themselves.
Task<void> walk_alone(World& world) {
  const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
  DTensor x = distribute_tensor(counting(world, {4, 2}), mesh, Shard(0), std::nullopt);
  x.set_requires_grad(true);
  const DTensor w = distribute_tensor(counting(world, {2, 4}), mesh, Shard(1), std::nullopt);
  const DTensor y = mul(x, 2).redistribute(Replicate()).tensor();
  const DTensor loss = sum(matmul(y, w));
  if (world.rank() == 1) co_return;
  Task<void> walk = backward(loss);
  co_await std::move(walk);
  x.grad().wait();
}

TEST(UserLine, OfTheProgramNotOfTheLibraryInABackwardPass) {
  const std::vector<End> ends = ends_of(quick_options(2), walk_alone);
  EXPECT_TRUE(ends[0].is(ErrorKind::CommFailed)) << ends[0];
  EXPECT_TRUE(ends[0].names("user_line_test.cpp:")) << ends[0];
}

}  // namespace
}  // namespace coshard::user_line
