// Ranks that pass other tensors are told so, all of them.
#include <filesystem>

#include "tests/dtensor/checkpoint/saved_states.h"

namespace coshard::testing {
namespace {

TEST(SameState, IsRequiredOfAllRanks) {
  const ScratchFolder scratch;
  on_ranks(3, [&](World& world) -> Task<void> {
    State other;
    other.add("a", counting(world, {3})).add(world.rank() == 1 ? "b" : "c", counting(world, {3}));
    Task<std::string> names = refusal_of_save(other, scratch.path("m"));
    const std::string names_text = co_await std::move(names);
    expect_names(names_text, {"ranks 0 and 1", "number 1", world.rank() == 1 ? "'b'" : "'c'"});
    State more;
    more.add("a", counting(world, {3}));
    if (world.rank() == 2) more.add("b", counting(world, {3}));
    Task<std::string> count = refusal_of_save(more, scratch.path("m"));
    const std::string count_text = co_await std::move(count);
    expect_names(count_text, {"ranks 0 and 2"});
    const DeviceMesh mesh = init_device_mesh(world, {3}, {"dp"});
    State varies;
    varies.add("x", to_local(distribute_tensor(counting(world, {3}), mesh, Shard(0))));
    Task<std::string> differs = refusal_of_save(varies, scratch.path("m"));
    const std::string differs_text = co_await std::move(differs);
    expect_names(differs_text, {"'x'", "differs by rank", "dp"});
  });
  EXPECT_FALSE(std::filesystem::exists(scratch.path("m")));
  EXPECT_FALSE(std::filesystem::exists(scratch.path("m.part")));
}

}  // namespace
}  // namespace coshard::testing
