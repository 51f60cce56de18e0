// What is in flight on the ranks of a mesh is in flight outside of it too: an await that all ranks
// give up lets the program go on, and a walk beside a sibling suspends alike.
#include <gtest/gtest.h>

#include <stdexcept>
#include <utility>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/dtensor/redistribute/transfer.h>
#include <coshard/dtensor/redistribute/transfer_to.h>
#include <coshard/dtensor/tape/tape.h>
#include <coshard/runtime/coro/when_all.h>
#include <coshard/runtime/launch/simulate.h>
#include "dtensor/redistribute/deferred.h"
#include "tests/support/ranks.h"

namespace coshard::outside_in_flight {
namespace {
using namespace std::chrono_literals;
using testing::counting;

struct Planned : std::runtime_error {
  Planned() : std::runtime_error("planned") {}
};
Task<void> throws() {
  co_await yield();
  throw Planned();
}
Task<void> waits(Redistribution redistribution) { co_await redistribution; }
Task<void> give_up(Redistribution redistribution) {
  Task<void> throwing = throws(), waiting = waits(redistribution);
  Task<void> both = when_all(std::move(throwing), std::move(waiting));
  EXPECT_THROW(co_await std::move(both), Planned);
}

// Ranks 0 and 1 of three are in `two`.
struct Setup {
  explicit Setup(World& world)
      : all(init_device_mesh(world, {3}, {"all"})),
        two(DeviceMesh::from_ranks(world, {0, 1}, {2}, {"two"})),
        plain(counting(world, {4, 6})),
        x(on(all, Shard(0))),
        flying(redistribute(x, two, Layout(Replicate())).tensor()) {}
  DTensor on(const DeviceMesh& mesh, Placement placement) const {
    return distribute_tensor(plain, mesh, placement, std::nullopt);
  }
  DTensor leaf(const DeviceMesh& mesh, Placement placement) const {
    DTensor made = on(mesh, placement);
    made.set_requires_grad(true);
    return made;
  }
  DeviceMesh all, two;
  Tensor plain;
  DTensor x;
  DTensor flying;  // from `all` to `two`
};
using Part = Task<void> (*)(Setup& setup);

Task<void> gathers(DTensor x) {
  for (int i = 0; i < 3; ++i) {
    const Redistribution whole = redistribute(x, Layout(Replicate()));
    co_await whole;
  }
}
Task<void> walks(DTensor loss, DTensor seed, DTensor x) {
  Task<void> walk = backward(loss, seed);
  co_await std::move(walk);
  const Redistribution whole = redistribute(x, Layout(Replicate()));
  co_await whole;
}
// A walk whose seed is in flight, beside a sibling that communicates on another mesh.
Task<void> seeded(Setup& setup, DTensor seed) {
  const DTensor loss = mul(setup.leaf(setup.two, Replicate()), 2.0);
  Task<void> both = when_all(walks(loss, seed, setup.x), gathers(setup.x));
  co_await std::move(both);
}

// --- operators ---

Task<void> cut_by_a_view(Setup& setup) {
  const DTensor product = mul(setup.flying, setup.on(setup.two, Shard(0)));
  return give_up(redistribute(setup.flying, Layout(Shard(0))));
}
Task<void> a_view(Setup& setup) {
  return give_up(redistribute(transpose(setup.flying, 0, 1), Layout(Shard(0))));
}
Task<void> read_by_a_view(Setup& setup) {
  const DTensor product = mul(transpose(setup.flying, 0, 1), 2.0);
  return give_up(redistribute(setup.flying, Layout(Shard(0))));
}
Task<void> a_view_as_seed(Setup& setup) {
  const DTensor whole = redistribute(setup.on(setup.two, Shard(0)), Layout(Replicate())).tensor();
  return seeded(setup, transpose(transpose(whole, 0, 1), 0, 1));
}

// --- locals ---

FromLocalOptions whole_shape(bool run_check = false) {
  FromLocalOptions options;
  options.shape = Shape{4, 6};
  options.run_check = run_check;
  return options;
}
Task<void> from_a_local(Setup& setup) {
  const DTensor back =
      from_local(to_local(setup.flying), setup.two, Layout(Replicate()), whole_shape());
  return give_up(redistribute(back, Layout(Shard(0))));
}
Task<void> a_distribution_as_seed(Setup& setup) {
  return seeded(setup, issue_distribution(setup.plain, setup.two, Layout(Replicate())));
}
Task<void> checked_locals_as_seed(Setup& setup) {
  return seeded(setup, from_local(setup.plain, setup.two, Layout(Replicate()), whole_shape(true)));
}
Task<void> back_through_a_smaller_mesh(Setup& setup) {
  const DTensor whole = redistribute(setup.leaf(setup.all, Shard(0)), Layout(Replicate())).tensor();
  const Tensor local = to_local(whole, Layout(Partial()));
  const DTensor y = from_local(local, setup.two, Layout(Replicate()), whole_shape());
  return backward(sum(mul(y, 2.0)));
}

// --- gradients and messages ---

Task<void> reduces_between_walks(Setup& setup) {
  const DTensor leaf = setup.leaf(setup.two, Replicate()), one = setup.on(setup.two, Replicate());
  Task<void> first = backward(mul(leaf, 2.0), one);
  co_await std::move(first);
  all_reduce_gradients({leaf}, setup.two, 0, Reduce::Avg);
  Task<void> second = walks(mul(leaf, 3.0), one, setup.x);
  co_await std::move(second);
}
Task<void> reduced_gradients(Setup& setup) {
  Task<void> both = when_all(reduces_between_walks(setup), gathers(setup.x));
  co_await std::move(both);
}
Task<void> a_message_of_what_flies(Setup& setup) {
  const Tensor local = to_local(redistribute(setup.x, Layout(Replicate())).tensor());
  return give_up(transfer(local, 0, 1));
}
Task<void> a_message_of_what_is_deferred(Setup& setup) {
  DTensor later;
  {
    const DeferRedistributes deferring;
    later = redistribute(setup.x, Layout(Replicate())).tensor();
  }
  const Redistribution sent = transfer(to_local(later), 0, 1);
  const Redistribution other = redistribute(setup.x, Layout(Shard(1)));
  co_await sent;
  co_await other;
}

Task<void> then_goes_on(World& world, Part part, int& done) {
  Setup setup(world);
  Task<void> first = part(setup);
  co_await std::move(first);
  const Redistribution again = redistribute(setup.x, setup.two, Layout(Replicate()));
  co_await again;
  ++done;
}
void expect_alike(Part part) {
  WorldOptions options;
  options.ranks = 3;
  options.timeout = 60s;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    int done = 0;
    EXPECT_NO_THROW(simulate(
        options, [&](World& world) { return then_goes_on(world, part, done); }, seed))
        << "seed " << seed;
    EXPECT_EQ(done, 3) << "seed " << seed;
  }
}

TEST(OutsideInFlight, AnOperatorThatCutsByAView) { expect_alike(cut_by_a_view); }
TEST(OutsideInFlight, ARedistributeOfAView) { expect_alike(a_view); }
TEST(OutsideInFlight, AnOperatorOnAView) { expect_alike(read_by_a_view); }
TEST(OutsideInFlight, AWalkFromAView) { expect_alike(a_view_as_seed); }
TEST(OutsideInFlight, FromLocal) { expect_alike(from_a_local); }
TEST(OutsideInFlight, AWalkFromADistribution) { expect_alike(a_distribution_as_seed); }
TEST(OutsideInFlight, AWalkFromLocalsThatAreChecked) { expect_alike(checked_locals_as_seed); }
TEST(OutsideInFlight, AWalkThroughASmallerMesh) { expect_alike(back_through_a_smaller_mesh); }
TEST(OutsideInFlight, GradientsThatAreReduced) { expect_alike(reduced_gradients); }
TEST(OutsideInFlight, AMessage) { expect_alike(a_message_of_what_flies); }
TEST(OutsideInFlight, AMessageOfWhatIsDeferred) { expect_alike(a_message_of_what_is_deferred); }

}  // namespace
}  // namespace coshard::outside_in_flight
