// What is drawn, and the steps that give a value without waiting.
#include "tests/dtensor/simulation/player.h"

#include <cmath>
#include <numeric>

#include <coshard/dtensor/redistribute/transfer.h>
#include <coshard/dtensor/redistribute/transfer_to.h>
#include "dtensor/redistribute/deferred.h"

namespace coshard::testing {
namespace {

constexpr int kMostFactors = 5;

// All ranks, some of them, and a plane of them where they fill one.
std::vector<DeviceMesh> make_meshes(World& world, Dice& dice) {
  std::vector<int> all(static_cast<std::size_t>(world.size()));
  std::iota(all.begin(), all.end(), 0);
  std::vector<DeviceMesh> meshes{init_device_mesh(world, {world.size()}, {"all"})};
  for (int n = dice.below(3); n > 0; --n) {
    std::vector<int> members;
    for (const int rank : all)
      if (!dice.one_in(3)) members.push_back(rank);
    if (members.empty()) continue;
    if (dice.one_in(2)) std::swap(members.front(), members.back());
    const int count = static_cast<int>(members.size());
    meshes.push_back(DeviceMesh::from_ranks(world, members, {count}, {str_cat("some", n)}));
  }
  if (world.size() == 4) meshes.push_back(init_device_mesh(world, {2, 2}, {"dp", "tp"}));
  if (world.size() == 5)
    meshes.push_back(DeviceMesh::from_ranks(world, {4, 1, 0, 2}, {2, 2}, {"x", "y"}));
  if (world.size() == 6) meshes.push_back(init_device_mesh(world, {3, 2}, {"dp", "tp"}));
  if (world.size() == 8) {
    meshes.push_back(init_device_mesh(world, {2, 2, 2}, {"dp", "cp", "tp"}));
    meshes.push_back(init_device_mesh(world, {2, 4}, {"x", "y"}));
  }
  return meshes;
}

Tensor small_numbers(World& world, const Shape& shape, Dice& dice) {
  std::vector<double> values(static_cast<std::size_t>(numel(shape)));
  for (double& value : values) value = dice.below(5) - 2;
  return Tensor::from_values(world.device(), shape, DType::F64, values);
}

}  // namespace

Player::Player(World& world, std::uint64_t seed, const std::optional<Difference>& difference,
               RankReport& report)
    : world_(world), seed_(seed), report_(report) {
  if (difference && difference->rank == world.rank()) difference_ = *difference;
  Dice dice(seed ^ 0x5eed);
  shape_ = {dice.below(8), 1 + dice.below(7)};
  meshes_ = make_meshes(world, dice);
}

// In a cancelled branch nothing is different any more.
bool Player::differs(Differs how) {
  if (!difference_ || difference_->how != how || taken_ < difference_->at) return false;
  if (report_.different || Branch::current().cancelled()) return false;
  report_.different = true;
  return true;
}

// Who has nothing to issue in a branch that was cancelled notices that at the next await.
void Player::log(const Scope& scope, const std::string& what) {
  if (!Branch::current().cancelled()) report_.log.push_back(str_cat(scope.path, " ", what));
}

const DeviceMesh& Player::draw_mesh(Dice& dice) {
  return meshes_[static_cast<std::size_t>(dice.below(static_cast<int>(meshes_.size())))];
}

Layout Player::draw_layout(Dice& dice, const DeviceMesh& mesh, bool partial) {
  Layout layout;
  for (int m = 0; m < mesh.ndim(); ++m) {
    const int what = dice.below(partial ? 4 : 3);
    if (what == 0) layout.push_back(Replicate());
    if (what == 1 || what == 2) layout.push_back(Shard(what - 1));
    if (what == 3) layout.push_back(Partial());
  }
  return layout;
}

Value& Player::draw_value(Scope& scope) {
  if (scope.values.empty()) leaf(scope);
  return scope
      .values[static_cast<std::size_t>(scope.dice.below(static_cast<int>(scope.values.size())))];
}

void Player::leaf(Scope& scope) {
  const DeviceMesh& mesh = draw_mesh(scope.dice);
  Value value;
  value.want = small_numbers(world_, shape_, scope.dice);
  const Layout layout = draw_layout(scope.dice, mesh, true);
  value.got = distribute_tensor(value.want.detach(), mesh, layout, std::nullopt);
  if (!scope.dice.one_in(4)) {
    value.want.set_requires_grad(true);
    value.got.set_requires_grad(true);
    if (!scope.may_be_cancelled) leaves_.push_back(value);
  }
  scope.values.push_back(value);
}

void Player::redistribute_one(Scope& scope) {
  Value value = draw_value(scope);
  const Layout target = draw_layout(scope.dice, value.got.mesh(), false);
  value.flight = redistribute(value.got, target);
  value.got = value.flight->tensor();
  scope.values.push_back(std::move(value));
}

void Player::to_another_mesh(Scope& scope) {
  Value value = draw_value(scope);
  const DeviceMesh& mesh = draw_mesh(scope.dice);
  const Layout target = draw_layout(scope.dice, mesh, false);
  value.flight = redistribute(value.got, mesh, target);
  value.got = value.flight->tensor();
  scope.values.push_back(std::move(value));
}

void Player::defer(Scope& scope) {
  Value value = draw_value(scope);
  const DeferRedistributes guard;
  const Layout target = draw_layout(scope.dice, value.got.mesh(), false);
  value.want = value.want.detach();
  value.flight = redistribute(value.got.detach(), target);
  value.got = value.flight->tensor();
  scope.values.push_back(std::move(value));
}

void Player::multiply(Scope& scope) {
  Value value = draw_value(scope);
  if (value.factors >= kMostFactors) return;
  const double scalar = scope.dice.below(5) - 2;
  if (scope.dice.one_in(2)) {
    value.got = mul(value.got, scalar);
    value.want = mul(value.want, scalar);
  } else {
    const Tensor factor = small_numbers(world_, shape_, scope.dice);
    const DeviceMesh& mesh = value.got.mesh();
    const Layout layout = draw_layout(scope.dice, mesh, false);
    value.got = mul(value.got, distribute_tensor(factor, mesh, layout, std::nullopt));
    value.want = mul(value.want, factor);
  }
  value.flight.reset();
  ++value.factors;
  scope.values.push_back(std::move(value));
}

// With the first other one of the same mesh.
void Player::add_two(Scope& scope) {
  Value value = draw_value(scope);
  for (const Value& other : scope.values) {
    if (other.got.mesh().names() != value.got.mesh().names()) continue;
    value.got = add(value.got, other.got);
    value.want = add(value.want, other.want);
    value.factors = std::max(value.factors, other.factors) + 1;
    break;
  }
  value.flight.reset();
  if (value.factors <= kMostFactors) scope.values.push_back(std::move(value));
}

// x w^T u has the shape of x.
void Player::product_of_matrices(Scope& scope) {
  Value value = draw_value(scope);
  if (value.factors + 2 > kMostFactors) return;
  const DeviceMesh& mesh = value.got.mesh();
  const auto one = [&](const Tensor& matrix) {
    const Layout layout = draw_layout(scope.dice, mesh, false);
    return distribute_tensor(matrix, mesh, layout, std::nullopt);
  };
  const Tensor w = small_numbers(world_, {3, shape_[1]}, scope.dice);
  const Tensor u = small_numbers(world_, {3, shape_[1]}, scope.dice);
  const DTensor w_cut = one(w), u_cut = one(u);
  value.got = matmul(matmul(value.got, transpose(w_cut, 0, 1)), u_cut);
  value.want = matmul(matmul(value.want, transpose(w, 0, 1)), u);
  value.flight.reset();
  value.factors += 2;
  scope.values.push_back(std::move(value));
}

// Of what may be in flight: there and back.
void Player::view(Scope& scope) {
  Value value = draw_value(scope);
  value.got = transpose(transpose(value.got, 0, 1), 0, 1);
  value.want = transpose(transpose(value.want, 0, 1), 0, 1);
  value.flight.reset();
  scope.values.push_back(std::move(value));
}

void Player::through_local(Scope& scope) {
  Value value = draw_value(scope);
  const Layout layout = value.got.layout();
  FromLocalOptions options;
  options.shape = value.got.shape();
  value.got = from_local(to_local(value.got), value.got.mesh(), layout, options);
  value.flight.reset();
  if (!layout.has_partial()) scope.values.push_back(std::move(value));
}

void Player::send(Scope& scope) {
  const int from = scope.dice.below(world_.size()), to = scope.dice.below(world_.size());
  const double number = scope.dice.below(100);
  const auto of = [&](int rank) { return std::vector<double>{number, number + rank}; };
  const Tensor x = Tensor::from_values(world_.device(), {2}, DType::F64, of(world_.rank()));
  std::vector<double> want = of(world_.rank());
  if (world_.rank() == to) want = of(from);
  scope.messages.push_back({transfer(x, from, to), std::move(want)});
}

void Player::check(const std::vector<double>& got, const std::vector<double>& want,
                   const std::string& how) {
  ++report_.checked;
  if (got == want || !report_.wrong.empty()) return;
  std::string text = str_cat(how, " on rank ", world_.rank(), ": got");
  for (const double value : got) text += str_cat(" ", value);
  text += ", not";
  for (const double value : want) text += str_cat(" ", value);
  report_.wrong = text;
}

void Player::check(const Value& value, const char* how) {
  const DeviceMesh& mesh = value.got.mesh();
  if (!mesh.contains_this_rank() || value.got.layout().has_partial()) return;
  const DTensor right =
      distribute_tensor(value.want.detach(), mesh, value.got.layout(), std::nullopt);
  check(to_local(value.got.detach()).to_vector(), to_local(right).to_vector(), how);
}

}  // namespace coshard::testing
