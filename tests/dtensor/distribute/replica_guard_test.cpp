// The first operator whose replicas differ is named.
#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/distribute/replica_guard.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include "dtensor/distribute/replicas.h"
#include "tests/support/ranks.h"

#include <gtest/gtest.h>

namespace coshard {
namespace {

using testing::counting;
using testing::on_ranks;

// Rank 1 writes to its replica behind everybody's back; several operators follow.
Task<void> write_to_one_replica(World& world, Layout layout, bool writes) {
  const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
  const ReplicaGuard guard(world);
  const DTensor x = distribute_tensor(counting(world, {4}), mesh, layout, std::nullopt);
  const DTensor y = mul(x, 2.0);
  const double other = 7;
  if (world.rank() == 1 && writes) world.device()->upload(y.data(), &other, sizeof other);
  const DTensor z = exp(neg(y));
  const DTensor more = add(z, z);
  const DTensor terms = ones(mesh, Partial(), {1});
  co_await terms.redistribute(Replicate());
}

TEST(ReplicaGuard, NamesTheFirstOperatorWhoseReplicasDiffer) {
  std::string text;
  try {
    on_ranks(2, [](World& world) { return write_to_one_replica(world, Replicate(), true); });
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::CommFailed) << error.what();
    text = error.what();
  }
  EXPECT_NE(text.find("; rank 0 last neg "), std::string::npos) << text;
  EXPECT_NE(text.find("; rank 1 last neg "), std::string::npos) << text;
  EXPECT_NE(text.find("is the hash of its Replicate output 0"), std::string::npos) << text;
}

TEST(ReplicaGuard, SaysNothingOfEqualReplicasAndOfShards) {
  on_ranks(2, [](World& world) { return write_to_one_replica(world, Replicate(), false); });
  on_ranks(2, [](World& world) { return write_to_one_replica(world, Shard(0), true); });
}

}  // namespace
}  // namespace coshard
