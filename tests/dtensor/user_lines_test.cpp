// Errors and events of collectives name lines of the program, and none of the library.
#include <gtest/gtest.h>

#include <regex>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/dtensor/redistribute/transfer.h>
#include <coshard/dtensor/tape/tape.h>
#include <coshard/runtime/coro/when_all.h>
#include "tests/dtensor/redistribute/sums.h"
#include "tests/dtensor/user_lines.h"
#include "tests/support/ranks.h"
#include "tests/support/virtual_ranks.h"

namespace coshard::user_lines {
namespace {
using namespace std::chrono_literals;
using testing::counting;
using testing::End;
using testing::ends_of;
using testing::quick_options;
using testing::simulated_ends_of;
using testing::term;

DTensor rows(World& world, const DeviceMesh& mesh) {
  return distribute_tensor(counting(world, {4, 2}), mesh, Shard(0), std::nullopt);
}
DTensor replica(World& world, const DeviceMesh& mesh) {
  DTensor x = distribute_tensor(counting(world, {2, 2}), mesh, Replicate(), std::nullopt);
  return x.set_requires_grad(true);
}

// Each communicates in its only line, and is told which that is. On rank 1 a barrier comes first,
// which is the disagreement that both ranks are to tell of.

Task<void> member(World& world, DeviceMesh mesh, Turn turn) {
  const DTensor x = rows(world, mesh);
  turn.line(__LINE__ + 1);
  const Redistribution issued = x.redistribute(Replicate());
  co_await issued;
}
Task<void> of_other_mesh(World& world, DeviceMesh mesh, Turn turn) {
  const DTensor x = rows(world, mesh);
  const DeviceMesh other = DeviceMesh::from_ranks(world, {1, 0}, {2});
  turn.line(__LINE__ + 1);
  const Redistribution issued = redistribute(term(world, mesh, 1), other, Layout(Replicate()));
  co_await issued;
}
Task<void> product(World& world, DeviceMesh mesh, Turn turn) {
  const DTensor x = from_local(counting(world, {2, 2}), mesh, Partial());
  turn.line(__LINE__ + 1);
  matmul(x, x).wait();
  co_return;
}
Task<void> infix(World& world, DeviceMesh mesh, Turn turn) {
  const DTensor x = term(world, mesh, 1);
  turn.line(__LINE__ + 1);
  (x * x).wait();
  co_return;
}
Task<void> composed(World& world, DeviceMesh mesh, Turn turn) {
  const DTensor x = rows(world, mesh);
  turn.line(__LINE__ + 1);
  sort(x, 0).values.wait();
  co_return;
}
Task<void> backward_pass(World& world, DeviceMesh mesh, Turn turn) {
  const DTensor x = replica(world, mesh);
  const DTensor loss = sum(square(x.redistribute(Shard(0)).tensor()));
  turn.line(__LINE__ + 1);
  Task<void> walk = backward(loss);
  co_await std::move(walk);
  x.grad().wait();
}
Task<void> backward_in_place(World& world, DeviceMesh mesh, Turn turn) {
  const DTensor x = replica(world, mesh);
  const DTensor loss = sum(square(x.redistribute(Shard(0)).tensor()));
  turn.line(__LINE__ + 1);
  run_backward(loss);
  x.grad().wait();
  co_return;
}
// With a gradient that is Partial.
std::vector<Tensor> stepped(World& world, const DeviceMesh& mesh) {
  const DTensor w = replica(world, mesh);
  run_backward(sum(matmul(rows(world, mesh), w)));
  return {w};
}
Task<void> optimizer_step(World& world, DeviceMesh mesh, Turn turn) {
  SGD optimizer(stepped(world, mesh));
  turn.line(__LINE__ + 1);
  Task<void> step = optimizer.step();
  co_await std::move(step);
}
Task<void> clipping(World& world, DeviceMesh mesh, Turn turn) {
  const std::vector<Tensor> parameters = stepped(world, mesh);
  turn.line(__LINE__ + 1);
  Task<Tensor> clipped = clip_grad_norm(parameters, 1.0);
  co_await std::move(clipped);
}
Task<void> replicas_summed(World& world, DeviceMesh mesh, Turn turn) {
  const Tensor w = counting(world, {2}).set_requires_grad(true);
  w.set_grad(w.detach());
  turn.line(__LINE__ + 1);
  all_reduce_gradients({w}, mesh, 0);
  w.grad().wait();
  co_return;
}
Task<void> checked_locals(World& world, DeviceMesh mesh, Turn turn) {
  const Tensor x = counting(world, {2});
  FromLocalOptions options;
  options.run_check = true;
  turn.line(__LINE__ + 1);
  from_local(x, mesh, Shard(0), options);
  co_return;
}

TEST(UserLines, OfEachCallThatCommunicates) {
  const Asks all[] = {member,   of_other_mesh,   product,           infix,
                      composed, backward_pass,   backward_in_place, optimizer_step,
                      clipping, replicas_summed, checked_locals};
  for (const Asks asks : all) expect_both_lines(asks);
}

Task<void> two_dimensions(World& world, int& line) {
  const DeviceMesh mesh = init_device_mesh(world, {2, 1}, {"dp", "tp"});
  const Layout cut(Shard(0), Replicate());
  const DTensor x = distribute_tensor(counting(world, {4, 2}), mesh, cut, std::nullopt);
  if (world.rank() == 1) testing::compute_for(400ms);
  line = __LINE__ + 1;
  const Redistribution issued = x.redistribute(Replicate(), Replicate());
  co_await issued;
}

TEST(UserLines, OfATimeout) {
  std::vector<int> lines(2);
  WorldOptions options = quick_options(2);
  options.timeout = 100ms;
  const std::vector<End> ends = simulated_ends_of(options, [&](World& world) {
    return two_dimensions(world, lines[static_cast<std::size_t>(world.rank())]);
  });
  EXPECT_TRUE(ends[0].is(ErrorKind::Timeout)) << ends[0];
  EXPECT_TRUE(ends[0].names(str_cat("user_lines_test.cpp:", lines[0])))
      << lines[0] << ": " << ends[0];
  expect_no_library_file(ends[0].text);
}

Task<void> child(World& world, DeviceMesh mesh, Turn turn) {
  co_await yield();
  const DTensor x = rows(world, mesh);
  turn.line(__LINE__ + 1);
  const Redistribution issued = x.redistribute(Replicate());
  co_await yield();
  co_await issued;
}
Task<void> quiet_sibling() {
  co_await yield();
  co_await yield();
}
Task<void> in_a_child(World& world, DeviceMesh mesh, Turn turn) {
  Task<void> first = quiet_sibling();
  Task<void> second = child(world, mesh, turn);
  Task<void> both = when_all(std::move(first), std::move(second));
  co_await std::move(both);
}

TEST(UserLines, OfAChildOfAWhenAll) { expect_both_lines(in_a_child); }

// Two branches, each within a call of its own that has not returned.
Task<void> walk_alone(World& world, DeviceMesh mesh, int& line) {
  const DTensor x = replica(world, mesh);
  const DTensor loss = sum(square(x.redistribute(Shard(0)).tensor()));
  line = __LINE__ + 1;
  Task<void> walk = backward(loss);
  co_await std::move(walk);
  Task<Tensor> clipped = clip_grad_norm({x}, 1.0);
  co_await std::move(clipped);
}

class KeepsPlaces final : public Observer {
 public:
  explicit KeepsPlaces(World& world) : world_(world) { world.add_observer(this); }
  ~KeepsPlaces() override { world_.remove_observer(this); }
  void issued(const CommEvent& event, std::int64_t) override { places.push_back(event.where); }
  std::vector<CallSite> places;

 private:
  World& world_;
};

Task<void> two_walks(World& world, int& first_line, int& second_line) {
  const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
  KeepsPlaces kept(world);
  Task<void> first = walk_alone(world, mesh, first_line);
  Task<void> second = walk_alone(world, mesh, second_line);
  Task<void> both = when_all(std::move(first), std::move(second));
  co_await std::move(both);
  EXPECT_EQ(kept.places.size(), 4U);  // a gathered gradient and a norm for each
  for (std::size_t i = 0; i < kept.places.size(); ++i) {
    EXPECT_NE(std::string(kept.places[i].file).find("user_lines_test.cpp"), std::string::npos);
    EXPECT_EQ(kept.places[i].line, i < 2 ? first_line : first_line + 2);
  }
  EXPECT_FALSE(Branch::current().place.site.known()) << "a call that has ended still counts";
}

TEST(UserLines, OfEachBranchAreItsOwnAndTheEventsHaveThem) {
  std::vector<std::pair<int, int>> lines(2);
  testing::on_ranks(2, [&](World& world) {
    auto& mine = lines[static_cast<std::size_t>(world.rank())];
    return two_walks(world, mine.first, mine.second);
  });
}

// As the library's own code calls an operator.
Task<void> without_a_line(World& world) {
  const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
  const DTensor x = from_local(counting(world, {2, 2}), mesh, Partial());
  if (world.rank() == 1) co_return;
  const WithinModule within("layers.0.mlp");
  matmul(x, x, CallSite()).wait();
}

TEST(UserLines, WhereNoneIsKnownTheOperatorAndTheModuleAreNamed) {
  const std::vector<End> ends = ends_of(quick_options(2), without_a_line);
  EXPECT_TRUE(ends[0].is(ErrorKind::CommFailed)) << ends[0];
  EXPECT_TRUE(ends[0].names(" in matmul, module layers.0.mlp")) << ends[0];
  expect_no_library_file(ends[0].text);
}

Task<void> does_not_fit(World& world, int& line) {
  const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
  const DTensor a = replica(world, mesh);
  const DTensor b = rows(world, mesh);
  line = __LINE__ + 1;
  matmul(b, matmul(a, add(a, a))).wait();
  if (world.rank() == 1) matmul(a, b).wait();
  co_return;
}

TEST(UserLines, WhatARunTellsOfAnErrorNamesTheLineOfTheOperator) {
  int lines[2] = {};
  std::string told;
  WorldOptions options = quick_options(2);
  options.on_failure = [&](const Failure& failure) { told = failure.line(); };
  EXPECT_THROW(
      run_ranks(options, [&](World& world) { return does_not_fit(world, lines[world.rank()]); }),
      Error);
  EXPECT_TRUE(told.starts_with("rank 1: matmul: ")) << told;
  EXPECT_TRUE(told.ends_with(str_cat(" at user_lines_test.cpp:", lines[1] + 1))) << told;
}

}  // namespace
}  // namespace coshard::user_lines
