#include "dtensor/redistribute/in_flight.h"

#include <gtest/gtest.h>

#include "dtensor/ops/local.h"
#include "dtensor/redistribute/issue.h"
#include "kernels/run.h"
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::counting;
using testing::on_ranks;

TEST(InFlight, AHandleToTheSameMemoryDoesNotWait) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor sum = counting(world, {3});
    issue_all_reduce(mesh.communicator(0), Reduce::Sum, sum, {"test"});
    EXPECT_TRUE(sum.in_flight());
    const Tensor place = place_of(sum);
    EXPECT_FALSE(place.in_flight());
    EXPECT_EQ(place.storage()->buffer, sum.storage()->buffer);
    EXPECT_EQ(sum.to_vector(), (std::vector<double>{2, 4, 6}));
    EXPECT_EQ(place.to_vector(), sum.to_vector());
    co_return;
  });
}

TEST(InFlight, WorkThatFollowsAnArrivalSeesTheArrivedData) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor sum = counting(world, {4});
    issue_all_reduce(mesh.communicator(0), Reduce::Sum, sum, {"test"});
    const Tensor copy = copy_later(sum);
    EXPECT_NE(copy.storage()->buffer, sum.storage()->buffer);
    const Tensor narrow = cast_local(copy, DType::F32);
    EXPECT_EQ(narrow.dtype(), DType::F32);
    EXPECT_EQ(narrow.to_vector(), (std::vector<double>{2, 4, 6, 8}));
    EXPECT_EQ(cast_local(copy, DType::F64).storage()->buffer, copy.storage()->buffer);
    co_return;
  });
}

TEST(InFlight, AResultThatIsMadeLaterIsInFlightUntilItIsMade) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor sum = counting(world, {2});
    issue_all_reduce(mesh.communicator(0), Reduce::Sum, sum, {"test"});
    Tensor to = Tensor::empty(world.device(), Shape{2}, DType::F64);
    make_from(sum, to, [place = place_of(to)](const Tensor& from) {
      kernels::run(
          *place.device(),
          kernels::Binary{kernels::BinaryOp::Mul, view_of(place), view_of(from), {}, 10.0});
    });
    EXPECT_EQ(to.to_vector(), (std::vector<double>{20, 40}));

    // Of what is there already it is made at once.
    bool made = false;
    make_from(counting(world, {2}), to, [&made](const Tensor&) { made = true; });
    EXPECT_TRUE(made);
    co_return;
  });
}

TEST(InFlight, WhoReceivesNothingIsInFlightAsLongAsTheSource) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor sum = counting(world, {2}), nothing = counting(world, {1});
    share_pending_work(nothing, sum);
    EXPECT_FALSE(sum.in_flight());
    issue_all_reduce(mesh.communicator(0), Reduce::Sum, sum, {"test"});
    share_pending_work(sum, nothing);
    EXPECT_TRUE(nothing.in_flight());
    nothing.wait();
    EXPECT_EQ(sum.to_vector(), (std::vector<double>{2, 4}));
    co_return;
  });
}

}  // namespace
}  // namespace coshard
