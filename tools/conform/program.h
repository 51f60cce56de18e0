#pragma once
// One rank's run of a case: its values by name, and the collectives of its steps. Rank's thread.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <coshard/dtensor/distribute/distribute.h>
#include "tools/conform/case_file.h"

namespace coshard::conform {

struct Modules;  // modules.h: modules and optimizers by name

// The collectives that each step issued, by name ("all_reduce"); one that is sent in pieces counts
// once.
class StepCounter final : public Observer {
 public:
  using Counts = std::map<std::string, int, std::less<>>;
  explicit StepCounter(World& world) : world_(world) { world.add_observer(this); }
  ~StepCounter() override { world_.remove_observer(this); }
  StepCounter(const StepCounter&) = delete;
  StepCounter& operator=(const StepCounter&) = delete;
  void begin(std::size_t step) { current_ = &steps_[step]; }
  void issued(const CommEvent& event, std::int64_t now) override;
  const std::map<std::size_t, Counts>& steps() const { return steps_; }

 private:
  World& world_;
  std::map<std::size_t, Counts> steps_;
  Counts* current_ = nullptr;
};

struct Program {
  Program(World& world, const Case& c);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  World& world;
  const Case& source;
  DeviceMesh mesh;
  std::map<std::string, Tensor> values;
  std::unique_ptr<Modules> modules;
  std::string doing;  // the current step, with the layouts of its inputs, for messages

  // The value called `name`; Error{BadInput} if no step created it.
  const Tensor& value(const std::string& name) const;
  // A value, or a parameter "module.name".
  Tensor value_or_parameter(const std::string& name) const;
  void assign(const std::string& name, Tensor value);
  // A new local tensor with the stored values; in the step's `dtype`, if given.
  Tensor load(const std::string& key, const Json& step) const;
  Tensor load(const std::string& key) const { return load(key, Json::object()); }
  // The key of this rank: the string itself, or this rank's entry of a list.
  const std::string& own_key(const Json& keys) const;
  // The mesh, or the sub-mesh that the step's `mesh_dim` names.
  DeviceMesh mesh_of(const Json& step) const;
};

Layout layout_of(const Json& placements);
std::optional<Layout> optional_layout(const Json& step, const char* field);
Shape shape_of(const Json& list);

// Runs step `at`. Error{BadInput}: the library rejects it. Error{Unsupported}: an unknown step.
Task<void> run_step(Program& program, std::size_t at);

}  // namespace coshard::conform
