// A call is decided once, whatever its tensors are.
#include "dtensor/ops/decision.h"

#include <gtest/gtest.h>

#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/ops/ops.h>
#include "dtensor/mesh/bounded_cache.h"
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::counting;
using testing::on_ranks;

std::size_t decisions() {
  for (const CacheSize& cache : cache_sizes())
    if (cache.name == "decisions") return cache.entries;
  return 0;
}

TEST(Decision, OfPlainTensorsAndDTensorsIsMadeOnceForEachKindOfCall) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor plain = counting(world, {4, 3});
    const DTensor cut = distribute_tensor(plain, mesh, Shard(0), std::nullopt);
    for (const Tensor& x : {plain, cut}) {
      const std::size_t before = decisions();
      const Tensor sum = add(x, x);
      EXPECT_EQ(decisions(), before + 1);
      EXPECT_EQ(add(x, sum).to_vector(), add(sum, x).to_vector());
      EXPECT_EQ(decisions(), before + 1);
      sub(x, x);
      EXPECT_EQ(decisions(), before + 2);
    }
    const std::size_t before = decisions();
    add(counting(world, {3, 4}), counting(world, {3, 4}));  // another shape
    EXPECT_EQ(decisions(), before + 1);
    co_return;
  });
}

// A learning rate is another one in every step.
TEST(Decision, OfANumberThatChangesIsThatOfTheFirstOfItsKind) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor plain = counting(world, {4, 3}, DType::F64);
    const DTensor cut = distribute_tensor(plain, mesh, Shard(0), std::nullopt);
    const DTensor terms = from_local(plain, mesh, Partial());
    for (const DTensor& x : {cut, terms}) {
      static_cast<void>(full_tensor(clamp((x * 2 + 3) / 5, 1.5, 7) * -2));
      const std::size_t before = decisions();
      for (const double by : {3.5, 1e30, 0.25}) {
        const Tensor whole = full_tensor(clamp((x * by + 2 * by) / (by + 1), 2.5, 6) * -by);
        const Tensor of = full_tensor(x);
        const Tensor want = clamp((of * by + 2 * by) / (by + 1), 2.5, 6) * -by;
        EXPECT_EQ(whole.to_vector(), want.to_vector());
      }
      EXPECT_LE(decisions(), before + 6);  // of `of`
    }
    // Of other kinds: a maximum of terms becomes a minimum, and an average that is not finite.
    const DTensor most = from_local(plain * (world.rank() + 1), mesh, Partial(Reduce::Max));
    EXPECT_EQ((most * 2).layout(), Layout(Partial(Reduce::Max)));
    EXPECT_EQ(full_tensor(most * -2).to_vector(), (plain * -4).to_vector());
    EXPECT_EQ(full_tensor(most * -3).to_vector(), (plain * -6).to_vector());
    const DTensor mask = from_local(plain > 6, mesh, Replicate());
    EXPECT_EQ(full_tensor(masked_fill(terms, mask, 0)).to_vector()[6], 0);
    EXPECT_EQ(full_tensor(masked_fill(terms, mask, 9)).to_vector()[6], 9);
    co_return;
  });
}

TEST(Decision, OfTwoMeshesThatAreShownAlikeSaysInWhatTheyDiffer) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const DeviceMesh turned = DeviceMesh::from_ranks(world, {1, 0}, {2}, {"tp"});
    const DTensor x = ones(mesh, Shard(0), {4});
    const auto error = [&](const DeviceMesh& other) -> std::string {
      try {
        add(x, ones(other, Shard(0), {4}));
      } catch (const Error& refused) {
        return refused.what();
      }
      return "";
    };
    EXPECT_NE(error(turned).find("different meshes (of different ranks)"), std::string::npos);
    EXPECT_NE(error(mesh.with_links({{1, 1}})).find("different meshes (with different links"),
              std::string::npos);
    EXPECT_TRUE(error(init_device_mesh(world, {2}, {"dp"})).find("different meshes;") !=
                std::string::npos);
    co_return;
  });
}

}  // namespace
}  // namespace coshard
