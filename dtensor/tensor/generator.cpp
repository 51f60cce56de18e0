#include <coshard/dtensor/tensor/generator.h>

#include <coshard/runtime/coro/branch.h>
#include <coshard/runtime/launch/world.h>
#include "runtime/comm/collective.h"

namespace coshard {
namespace {

// The generator of this branch. Ranks call in the same order, so they draw the same streams.
const BranchLocal<RandomState> generator;

// A child of a when_all draws from its own streams, which depend only on its position, not on what
// its siblings draw or when.
void fork_generator(Branch& parent, Branch& child, int position) {
  RandomState& from = generator.own(parent);
  if (position == 0) ++from.next_stream;                       // once for all children
  const std::uint64_t seed = from.seed ^ 0x6a09e667f3bcc909U;  // sqrt(2) - 1
  generator.own(child) = {
      mix(mix(seed, from.next_stream), static_cast<std::uint64_t>(position) + 1), 0};
}
[[maybe_unused]] const bool forks = on_branch_fork(fork_generator);

}  // namespace

void manual_seed(std::uint64_t seed) { generator.own() = {seed, 0}; }
RandomState random_state() { return generator.get(); }
void set_random_state(RandomState to) { generator.own() = to; }
RandomState take_stream(const Tensor& x) {
  RandomState& state = generator.own();
  const RandomState now = state;
  ++state.next_stream;
  if (!x.defined() || !x.is_distributed() || !x.mesh().contains_this_rank()) return now;
  for (int m = 0; m < x.mesh().ndim(); ++m)
    x.mesh().note(m, {"drew random stream", "of seed", now.next_stream, now.seed});
  return now;
}

LocalRandom::LocalRandom() : before_(random_state()) {
  const World* world = World::current();
  const auto rank = static_cast<std::uint64_t>(world != nullptr ? world->rank() : 0);
  const std::uint64_t seed = before_.seed ^ 0xbb67ae8584caa73bU;  // sqrt(3) - 1
  set_random_state({mix(mix(seed, rank + 1), before_.local++), 0});
}
LocalRandom::~LocalRandom() { set_random_state(before_); }

}  // namespace coshard
