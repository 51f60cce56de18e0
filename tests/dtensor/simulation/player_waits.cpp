// The steps that wait, and how they are put together.
#include <algorithm>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/coro/in_order.h>
#include "tests/dtensor/simulation/player.h"

namespace coshard::testing {
using namespace std::chrono_literals;

Task<void> Player::await_copy(Redistribution flight) { co_await flight; }

Task<void> Player::shards(Redistribution flight) {
  for (bool more = true; more;) {
    const std::optional<ArrivedShard> shard = co_await flight.next_shard();
    more = shard.has_value();
  }
}

Task<void> Player::thrower(Scope scope) {
  for (int turns = scope.dice.below(4); turns > 0; --turns) {
    redistribute_one(scope);
    const Redistribution flight = *scope.values.back().flight;
    if (scope.dice.one_in(2)) co_await flight;
    co_await yield();
  }
  throw PlannedError();
}

Task<void> Player::throw_after_a_turn() {
  co_await yield();
  throw PlannedError();
}

Task<void> Player::give_up(Redistribution flight) {
  Task<void> throwing = throw_after_a_turn();
  Task<void> waiting = await_copy(flight);
  Task<void> both = when_all(std::move(throwing), std::move(waiting));
  try {
    co_await std::move(both);
  } catch (const PlannedError&) {
  }
}

Task<void> Player::await_one(Scope& scope) {
  const Value value = draw_value(scope);
  const int how = scope.dice.below(4);
  if (!value.flight) co_return;
  if (differs(Differs::GivesUp)) {
    Task<void> given_up = give_up(*value.flight);
    co_await std::move(given_up);
    co_return;
  }
  if (how == 0) {
    const Redistribution::Host host = value.flight->host();
    co_await host;
  } else if (how == 1) {
    Task<void> all = shards(*value.flight);
    co_await std::move(all);
  } else {
    const Redistribution flight = *value.flight;
    co_await flight;
  }
  log(scope, str_cat("has awaited ", how));
  check(value, "a redistribute");
}

Task<void> Player::await_message(Scope& scope) {
  if (scope.messages.empty()) co_return;
  const Message message = scope.messages.back();
  scope.messages.pop_back();
  const Redistribution& flight = message.flight;
  const Tensor got = co_await flight;
  log(scope, "has a message");
  check(got.to_vector(), message.want, "a message");
}

// Woven with the siblings'. A leaf of several branches gets the sum.
Task<void> Player::walk_back(Scope& scope) {
  const Value value = draw_value(scope);
  const Layout layout = draw_layout(scope.dice, value.got.mesh(), false);
  if (!value.want.requires_grad()) co_return;
  std::vector<double> ones(static_cast<std::size_t>(numel(shape_)));
  for (double& one : ones) one = scope.dice.below(3) - 1;
  const Tensor gradient = Tensor::from_values(world_.device(), shape_, DType::F64, ones);
  const DTensor cut = distribute_tensor(gradient, value.got.mesh(), layout, std::nullopt);
  constexpr BackwardOptions kRetain{.retain_graph = true};  // others go back through it too
  Task<void> plain = backward(value.want, gradient, kRetain);
  co_await std::move(plain);
  Task<void> walk = backward(value.got, cut, kRetain);
  co_await std::move(walk);
  log(scope, "has gone back");
}

// Another time on every rank; the order stays the program's.
Task<void> Player::nap(Scope& scope) {
  std::chrono::nanoseconds mine{};
  for (int rank = 0; rank < world_.size(); ++rank) {
    const auto drawn = 200ms * scope.dice.below(1000) / 1000;
    if (rank == world_.rank()) mine = drawn;
  }
  auto slept = in_order(sleep_for(mine));
  co_await std::move(slept);
  log(scope, "has slept");
}

Task<void> Player::join(Scope& scope, Joined how, Branches tasks) {
  if (differs(Differs::SwapsBranches)) std::ranges::reverse(tasks);
  Task<void> all = when_all(std::move(tasks));
  const bool bounded = how == Joined::InTime || how == Joined::Overdue;
  const auto limit = how == Joined::Overdue ? 10s : 100'000s;
  const auto whole = [&all](std::stop_token) { return std::move(all); };
  try {
    if (bounded) {
      Task<void> in_time = with_deadline(limit, str_cat("branches of ", scope.path), whole);
      co_await std::move(in_time);
    } else {
      co_await std::move(all);
    }
  } catch (const PlannedError&) {
    if (how != Joined::TryAll) throw;
    log(scope, "has caught it");
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Timeout || how != Joined::Overdue) throw;
    log(scope, "is overdue");
  }
}

Task<void> Player::branches(Scope& scope) {
  constexpr Joined kAtTheTop[] = {Joined::All, Joined::All, Joined::TryAll, Joined::InTime,
                                  Joined::Overdue};
  constexpr Joined kBelow[] = {Joined::All, Joined::All, Joined::TryAll};
  Joined how = kBelow[scope.dice.below(3)];
  if (scope.depth == 0) how = kAtTheTop[scope.dice.below(5)];
  const bool cancels = how == Joined::TryAll || how == Joined::Overdue;
  const int count = 2 + scope.dice.below(3);
  Scope child{
      Dice(0),     "", scope.budget / count, scope.depth + 1, scope.may_be_cancelled || cancels,
      scope.values};
  scope.budget /= 2;
  for (Value& value : child.values) {
    if (!child.may_be_cancelled) break;
    value.got = value.got.detach();
    value.want = value.want.detach();
  }
  Branches tasks;
  for (int n = count; n > 0; --n) {
    child.dice = Dice(scope.dice.next());
    child.path = str_cat(scope.path, ".", n);
    if (how == Joined::TryAll && n == 2) tasks.push_back(thrower(child));
    tasks.push_back(branch(child));
  }
  if (how == Joined::TryAll) tasks.push_back(sleep_for(1h));
  if (how == Joined::Overdue) tasks.push_back(sleep_for(20s));
  Task<void> joined = join(scope, how, std::move(tasks));
  co_await std::move(joined);
}

void Player::compute(Scope& scope, int what) {
  switch (what) {
    case 0: leaf(scope); break;
    case 1: to_another_mesh(scope); break;
    case 2: defer(scope); break;
    case 3: multiply(scope); break;
    case 4: add_two(scope); break;
    case 5: product_of_matrices(scope); break;
    case 6: send(scope); break;
    case 7: view(scope); break;
    case 8: through_local(scope); break;
    default: redistribute_one(scope);
  }
  log(scope, str_cat("computes ", what));
}

Task<void> Player::differ() {
  if (differs(Differs::Throws)) throw Boom();
  if (differs(Differs::NeverComes)) {
    Task<void> for_ever = sleep_for(1'000'000h);
    co_await std::move(for_ever);
  }
}

Task<void> Player::step(Scope& scope) {
  const int what = scope.dice.below(22);
  if (what < 12) {
    compute(scope, what);
    co_return;
  }
  Task<void> waits;
  if (what < 15) waits = await_one(scope);
  if (what == 15) waits = await_message(scope);
  if (what == 16) waits = nap(scope);
  if (what == 17 || what == 18) waits = walk_back(scope);
  if (what > 18 && scope.depth < 3) waits = branches(scope);
  if (!waits) co_return;
  co_await std::move(waits);
}

Task<void> Player::steps(Scope& scope, int count) {
  for (int n = 0; n < count && scope.budget > 0; ++n) {
    --scope.budget;
    ++taken_;
    if (scope.depth == 0 && differs(Differs::Leaves)) co_return;
    Task<void> other = differ();
    co_await std::move(other);
    Task<void> next = step(scope);
    co_await std::move(next);
  }
}

// What is under way is awaited, or dropped.
Task<void> Player::end(Scope& scope) {
  for (const Value& value : scope.values) {
    if (!value.flight || scope.dice.one_in(4)) continue;
    const Redistribution flight = *value.flight;
    co_await flight;
    log(scope, "has awaited at the end");
    check(value, "a redistribute at the end");
  }
  while (!scope.messages.empty()) {
    Task<void> one = await_message(scope);
    co_await std::move(one);
  }
}

Task<void> Player::branch(Scope scope) {
  Task<void> some = steps(scope, 1 + scope.dice.below(6));
  co_await std::move(some);
  Task<void> rest = end(scope);
  co_await std::move(rest);
}

Task<void> Player::check_gradients() {
  for (const Value& leaf : leaves_) {
    if (!leaf.want.grad().defined()) {
      if (leaf.got.grad().defined()) report_.wrong = "a gradient that nobody asked for";
      continue;
    }
    Layout everywhere;
    for (int m = 0; m < leaf.got.mesh().ndim(); ++m) everywhere.push_back(Replicate());
    const Redistribution whole = redistribute(leaf.got.grad(), everywhere);
    const Tensor got = co_await whole;
    if (!leaf.got.mesh().contains_this_rank()) continue;
    check(to_local(got).to_vector(), leaf.want.grad().to_vector(), "a gradient");
  }
}

Task<void> Player::play() {
  Scope scope{Dice(seed_), "0"};
  scope.budget = 6 + scope.dice.below(40);
  Task<void> body = steps(scope, 1000);
  co_await std::move(body);
  if (report_.different && difference_->how == Differs::Leaves) co_return;
  Task<void> rest = end(scope);
  co_await std::move(rest);
  Task<void> gradients = check_gradients();
  co_await std::move(gradients);
}

}  // namespace coshard::testing
