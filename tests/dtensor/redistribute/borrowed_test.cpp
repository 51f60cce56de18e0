// A redistribute of borrowed memory: nobody reads it once the rank that lent it has failed.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <stdexcept>

#include "tests/dtensor/redistribute/sums.h"
#include "tests/support/ends.h"

namespace coshard::borrowed {
namespace {
using namespace std::chrono_literals;
using testing::be_busy;
using testing::quick_options;

constexpr std::int64_t kSize = 1000;

struct Boom : std::runtime_error {
  Boom() : std::runtime_error("boom") {}
};

// Stands for the owner of memory that is freed while a frame unwinds; the unwinding takes a while.
struct Lender {
  std::vector<double>& memory;
  std::atomic<bool>& freed;
  ~Lender() {
    std::fill(memory.begin(), memory.end(), -1.0);
    freed = true;
    be_busy(100ms);
  }
};

struct Shared {
  std::vector<double> memory = std::vector<double>(kSize, 1.0);
  std::atomic<bool> freed{false};
  std::optional<double> sum;
};

Task<void> throw_with_a_loan_in_flight(World& world, Shared& shared) {
  const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
  const Lender lender{shared.memory, shared.freed};
  const Tensor loan = Tensor::borrow(world.device(), shared.memory.data(), {kSize}, DType::F64);
  const Redistribution issued = from_local(loan, mesh, Partial()).redistribute(Replicate());
  co_await yield();
  throw Boom();
}
Task<void> join_when_it_is_freed(World& world, Shared& shared) {
  const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
  std::vector<double> ones(kSize, 1.0);
  const Tensor mine = Tensor::from_values(world.device(), {kSize}, DType::F64, ones);
  while (!shared.freed) be_busy(1ms);
  const Redistribution issued = from_local(mine, mesh, Partial()).redistribute(Replicate());
  const Tensor total = co_await issued;
  shared.sum = total.to_vector().front();
}

TEST(Borrowed, IsNotReadOnceTheRankThatLentItHasThrown) {
  Shared shared;
  EXPECT_THROW(run_ranks(quick_options(2),
                         [&](World& world) {
                           return world.rank() == 1 ? throw_with_a_loan_in_flight(world, shared)
                                                    : join_when_it_is_freed(world, shared);
                         }),
               Boom);
  EXPECT_EQ(shared.sum.value_or(2), 2);
}

}  // namespace
}  // namespace coshard::borrowed
