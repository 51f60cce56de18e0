#pragma once
// One rank that draws and runs a random program of DTensors.
#include <optional>
#include <string>
#include <vector>

#include <coshard/coshard.h>
#include "tests/dtensor/simulation/random_dtensors.h"
#include "tests/support/seeds.h"

namespace coshard::testing {

// A DTensor, perhaps in flight, and what it means.
struct Value {
  DTensor got;
  Tensor want;
  std::optional<Redistribution> flight;  // what gave it
  int factors = 1;                       // numbers grow by multiplication
};

// A tensor of this rank that is under way to another.
struct Message {
  Redistribution flight;
  std::vector<double> want;
};

// What a branch sees: copies of what its parent had.
struct Scope {
  Dice dice;
  std::string path;
  int budget = 0;  // steps
  int depth = 0;
  bool may_be_cancelled = false;  // then its gradients are nobody's business
  std::vector<Value> values = {};
  std::vector<Message> messages = {};
};

class Player {
 public:
  Player(World& world, std::uint64_t seed, const std::optional<Difference>& difference,
         RankReport& report);
  Task<void> play();

 private:
  using Branches = std::vector<Task<void>>;
  enum class Joined { All, TryAll, InTime, Overdue };

  bool differs(Differs how);
  void log(const Scope& scope, const std::string& what);
  const DeviceMesh& draw_mesh(Dice& dice);
  Layout draw_layout(Dice& dice, const DeviceMesh& mesh, bool partial);
  Value& draw_value(Scope& scope);

  Task<void> branch(Scope scope);
  Task<void> steps(Scope& scope, int count);
  Task<void> step(Scope& scope);
  Task<void> differ();
  void compute(Scope& scope, int what);

  // Steps that give a value.
  void leaf(Scope& scope);
  void redistribute_one(Scope& scope);
  void to_another_mesh(Scope& scope);
  void defer(Scope& scope);
  void multiply(Scope& scope);
  void add_two(Scope& scope);
  void product_of_matrices(Scope& scope);
  void view(Scope& scope);
  void through_local(Scope& scope);
  void send(Scope& scope);

  // Steps that wait.
  Task<void> await_one(Scope& scope);
  Task<void> await_message(Scope& scope);
  Task<void> shards(Redistribution flight);
  Task<void> await_copy(Redistribution flight);
  Task<void> throw_after_a_turn();
  Task<void> give_up(Redistribution flight);
  Task<void> walk_back(Scope& scope);
  Task<void> nap(Scope& scope);
  Task<void> branches(Scope& scope);
  Task<void> join(Scope& scope, Joined how, Branches tasks);
  Task<void> thrower(Scope scope);
  Task<void> end(Scope& scope);

  void check(const Value& value, const char* how);
  void check(const std::vector<double>& got, const std::vector<double>& want,
             const std::string& how);
  Task<void> check_gradients();

  World& world_;
  std::uint64_t seed_;
  RankReport& report_;
  std::optional<Difference> difference_;
  int taken_ = 0;  // steps, by all branches of this rank
  Shape shape_;
  std::vector<DeviceMesh> meshes_;
  std::vector<Value> leaves_;  // those whose gradients are held to the plain ones
};

}  // namespace coshard::testing
