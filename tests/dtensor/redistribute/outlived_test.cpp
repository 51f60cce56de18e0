// What a rank has issued is finished by its peers when its program has ended, plan and all.
#include <gtest/gtest.h>

#include <atomic>

#include "tests/dtensor/redistribute/sums.h"
#include "tests/support/ranks.h"

namespace coshard::testing {
namespace {
using namespace std::chrono_literals;

struct Way {
  Layout from, to;
};

// Uneven cuts, so that parts are packed and unpacked; an average divides when its data are there.
const std::vector<Way>& ways() {
  static const std::vector<Way> all{
      {Layout(Shard(1)), Layout(Replicate())},
      {Layout(Shard(1)), Layout(Shard(0))},
      {Layout(Partial(Reduce::Avg)), Layout(Replicate())},
      {Layout(Partial(Reduce::Avg)), Layout(Shard(1))},
  };
  return all;
}

DTensor source(World& world, const DeviceMesh& mesh, const Layout& layout) {
  const std::int64_t columns = layout[0].is_shard() ? (world.rank() < 2 ? 3 : 1) : 7;
  const std::vector<double> ones(static_cast<std::size_t>(5 * columns), 1.0);
  FromLocalOptions whole;
  whole.shape = Shape{5, 7};
  return from_local(Tensor::from_values(world.device(), {5, columns}, DType::F64, ones), mesh,
                    layout, whole);
}

Task<void> all_but_one_end_at_once(World& world, std::atomic<int>& ended) {
  const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"tp"});
  std::vector<DTensor> sources;
  for (const Way& way : ways()) sources.push_back(source(world, mesh, way.from));
  const int last = world.size() - 1;
  while (world.rank() == last && ended.load() < last) be_busy(1ms);
  if (world.rank() == last) be_busy(20ms);  // their worlds are gone
  std::vector<Redistribution> issued;
  for (std::size_t i = 0; i < sources.size(); ++i)
    issued.push_back(sources[i].redistribute(ways()[i].to[0]));
  ++ended;
  if (world.rank() != last) co_return;
  for (const Redistribution& each : issued) {
    const DTensor there = co_await each;
    for (const double value : there.raw_local().to_vector()) EXPECT_EQ(value, 1.0);
  }
}

TEST(Outlived, APeerFinishesWhatRanksThatHaveEndedIssued) {
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> ended{0};
    on_ranks(3, [&](World& world) { return all_but_one_end_at_once(world, ended); });
  }
}

}  // namespace
}  // namespace coshard::testing
