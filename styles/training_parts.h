#pragma once
// What training consists of, as a checkpoint has it: the model, and beside it, by the name of their
// file in training/, optimizers, further tensors and values. Refers to them. Rank's thread.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include <coshard/dtensor/checkpoint/load.h>
#include <coshard/dtensor/checkpoint/save.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/styles/module.h>
#include "dtensor/checkpoint/open_files.h"
#include "dtensor/checkpoint/save_in_progress.h"
#include "dtensor/checkpoint/training_files.h"

namespace coshard {

class TrainingParts {
 public:
  using Value = std::variant<std::int64_t*, double*>;

  explicit TrainingParts(Module& module) : module_(module) {}
  // Error{BadInput}: the name is taken, or is that of a part of every checkpoint.
  void add(const std::string& name, Optimizer& optimizer);
  void add(const std::string& name, State state);
  void add(const std::string& name, Value value);

  // Error{BadInput}: an optimizer steps a parameter that the module does not have.
  void check() const;
  // Beside the values: where the common random stream goes on. `beside` has step and further files.
  // Error{BadInput}: values that differ between ranks.
  Task<std::unique_ptr<SaveInProgress>> begin(std::string folder, SaveOptions options,
                                              TrainingFiles beside, SavingHow how) const;
  Task<void> save(std::string folder, SaveOptions options) const;
  // `all`: also of the file's parts and values each must be among these. `step`: that of the
  // folder. The report is the module's.
  Task<LoadReport> load(std::string folder, LoadOptions options, bool all,
                        std::optional<std::int64_t> step = std::nullopt) const;

 private:
  void require_new(const std::string& name) const;
  void require_known(const OpenFiles& model, bool all, std::optional<std::int64_t> step) const;
  void require_values(const OpenFiles& from, bool strict) const;
  struct ReadValues;
  using OpenParts = std::map<std::string, std::shared_ptr<const OpenFiles>>;
  Task<OpenParts> open(std::string folder, LoadOptions options,
                       std::shared_ptr<const OpenFiles> model) const;
  Task<void> fill_optimizers(std::string folder, LoadOptions options, OpenParts parts,
                             LoadReport& report) const;
  Task<void> fill_states(std::string folder, LoadOptions options, OpenParts parts, bool only_checks,
                         LoadReport& report) const;
  Task<ReadValues> read_values(std::shared_ptr<const OpenFiles> from, bool all) const;
  void apply(const ReadValues& read) const;

  Module& module_;
  std::map<std::string, std::reference_wrapper<Optimizer>> optimizers_;
  std::map<std::string, State> states_;
  std::map<std::string, Value> values_;
};

}  // namespace coshard
