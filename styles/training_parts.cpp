#include "styles/training_parts.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <coshard/dtensor/distribute/random.h>
#include <coshard/runtime/device/device.h>
#include <coshard/styles/state_dict.h>
#include <coshard/styles/training_state.h>
#include "dtensor/checkpoint/agreement.h"
#include "dtensor/checkpoint/local_parts.h"
#include "dtensor/checkpoint/manifest.h"
#include "dtensor/checkpoint/model_folder.h"
#include "dtensor/checkpoint/strict_json.h"
#include "styles/load_module.h"
#include "styles/optimizer_state.h"

namespace coshard {
namespace {

void add_missing(LoadReport& report, const LoadReport& of, const std::string& name) {
  for (const std::string& missing : of.missing)
    report.missing.push_back(str_cat(name, ": ", missing));
}

constexpr const char* kRandom = "random_state";
constexpr const char* kValues = "values";  // the file of all values

template <class Number, std::size_t n>
Tensor tensor_of(const std::shared_ptr<Device>& device, const Shape& shape, DType dtype,
                 const Number (&numbers)[n]) {
  const Tensor x = Tensor::empty(device, shape, dtype);
  device->upload(x.data(), numbers, sizeof numbers);
  return x;
}

template <class Number, std::size_t n>
void read_numbers(const Tensor& x, Number (&numbers)[n]) {
  x.device()->download(numbers, x.const_data(), sizeof numbers);
}

// A number that all ranks have alike: its name in errors, and its bits.
struct Common {
  std::string name;
  std::uint64_t bits;
  bool is_integer;
};
template <class Number>
std::uint64_t bits_of(Number number) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &number, sizeof bits);
  return bits;
}

// Where the random streams go on: of the common one, or a row for each rank where ranks draw apart.
// Error{BadInput}: numbers that differ.
Task<std::vector<std::uint64_t>> agreed_numbers(World& world, std::vector<Common> common) {
  const RandomState random = random_state();
  std::vector<std::uint64_t> own;
  for (const Common& number : common) own.push_back(number.bits);
  own.insert(own.end(), {random.seed, random.next_stream, random.local});
  const std::size_t each = own.size();
  Task<std::vector<std::uint64_t>> gathering =
      gather_numbers<std::uint64_t>(world, std::move(own), "values");
  const std::vector<std::uint64_t> all = co_await std::move(gathering);
  std::vector<std::uint64_t> streams;
  bool alike = true;
  for (std::size_t row = 0; row < all.size(); row += each) {
    for (std::size_t i = 0; i < common.size(); ++i) {
      const auto text = [&](std::uint64_t bits) {
        double real = 0;
        std::memcpy(&real, &bits, sizeof real);
        return common[i].is_integer ? str_cat(static_cast<std::int64_t>(bits)) : str_cat(real);
      };
      CS_REQUIRE(all[row + i] == all[i], "save: ", common[i].name, " is ", text(all[i]),
                 " on rank 0 and ", text(all[row + i]), " on rank ", row / each);
    }
    for (std::size_t i = common.size(); i < each; ++i) {
      streams.push_back(all[row + i]);
      alike = alike && all[row + i] == all[i];
    }
  }
  if (alike) streams.resize(3);
  co_return streams;
}

// The shape of "random_state": [3], or [ranks, 3] where ranks drew apart.
Shape stored_streams(const ModelFolder& values) {
  const std::optional<ModelFolder::Place> place = values.find(kRandom);
  const bool is_rows = place && place->tensor.shape.size() == 2 && place->tensor.shape[0] > 0 &&
                       place->tensor.shape[1] == 3;
  return is_rows ? Shape{static_cast<std::int64_t>(place->tensor.shape[0]), 3} : Shape{3};
}

// On other ranks than those that saved, the common stream goes on, after all scopes of any rank.
RandomState own_stream(const std::vector<std::uint64_t>& rows, const World& world,
                       const std::string& folder) {
  const std::size_t ranks = rows.size() / 3, own = static_cast<std::size_t>(world.rank()) * 3;
  if (ranks == 1) return {rows[0], rows[1], rows[2]};
  if (ranks == static_cast<std::size_t>(world.size()))
    return {rows[own], rows[own + 1], rows[own + 2]};
  RandomState common{rows[0], rows[1], rows[2]};
  for (std::size_t row = 0; row < rows.size(); row += 3) {
    CS_REQUIRE(rows[row] == common.seed && rows[row + 1] == common.next_stream, "load: ", folder,
               ": its ", ranks, " ranks drew from random streams of their own; resume on ", ranks,
               " ranks, here are ", world.size());
    common.local = std::max(common.local, rows[row + 2]);
  }
  return common;
}

// Whether it is training/`stem`.safetensors, or one of its files; "": of any stem.
bool is_part(std::string_view file, std::string_view stem) {
  constexpr std::string_view kInside = "training/", kEnd = ".safetensors";
  if (!file.starts_with(kInside) || !file.ends_with(kEnd)) return false;
  file.remove_prefix(kInside.size());
  file.remove_suffix(kEnd.size());
  if (stem.empty() || file == stem) return true;
  if (!file.starts_with(stem)) return false;
  constexpr std::string_view kNumbered = "-00001-of-00001";
  file.remove_prefix(stem.size());
  return std::ranges::equal(file, kNumbered, [](char a, char b) {
    return b == '0' || b == '1' ? '0' <= a && a <= '9' : a == b;
  });
}

bool has_part(const Manifest& manifest, std::string_view stem) {
  return std::ranges::any_of(manifest.files(),
                             [&](const auto& entry) { return is_part(entry.first, stem); });
}

}  // namespace

void TrainingParts::require_new(const std::string& name) const {
  CS_REQUIRE(is_file_name(name), "checkpoints: '", shortened(name),
             "' is no name of a file; use letters, digits, '_', '-' and '.'");
  CS_REQUIRE(name != kRandom && name != kValues, "checkpoints: '", name,
             "' is a part of every checkpoint; give another name");
  CS_REQUIRE(!optimizers_.contains(name) && !states_.contains(name) && !values_.contains(name),
             "checkpoints: '", name, "' is there already; give another name");
}
void TrainingParts::add(const std::string& name, Optimizer& optimizer) {
  require_new(name);
  optimizers_.emplace(name, optimizer);
}
void TrainingParts::add(const std::string& name, State state) {
  require_new(name);
  states_.emplace(name, std::move(state));
}
void TrainingParts::add(const std::string& name, Value value) {
  require_new(name);
  values_.emplace(name, value);
}

Task<void> TrainingParts::save(std::string folder, SaveOptions options) const {
  Task<std::unique_ptr<SaveInProgress>> begun = begin(std::move(folder), options, {}, {});
  const std::unique_ptr<SaveInProgress> saving = co_await std::move(begun);
  Task<void> finished = saving->finish();
  co_await std::move(finished);
}

void TrainingParts::check() const {
  for (const auto& [name, optimizer] : optimizers_) state_dict(optimizer, module_);
}

Task<std::unique_ptr<SaveInProgress>> TrainingParts::begin(std::string folder, SaveOptions options,
                                                           TrainingFiles beside,
                                                           SavingHow how) const {
  World* const world = World::current();
  CS_REQUIRE(world != nullptr, "save: called outside of a rank's program");
  std::vector<Common> common;
  for (const auto& [name, value] : values_)
    common.push_back({str_cat("value '", name, "'"),
                      std::visit([](const auto* number) { return bits_of(*number); }, value),
                      std::holds_alternative<std::int64_t*>(value)});
  for (const auto& [name, optimizer] : optimizers_)
    common.push_back(
        {str_cat("the learning rate of '", name, "'"), bits_of(optimizer.get().lr), false});
  Task<std::vector<std::uint64_t>> agreeing = agreed_numbers(*world, std::move(common));
  const std::vector<std::uint64_t> streams = co_await std::move(agreeing);
  for (const auto& [name, optimizer] : optimizers_)
    beside.training[name] = state_dict(optimizer, module_);
  for (const auto& [name, state] : states_) beside.training[name] = state;
  State values;
  const auto ranks = static_cast<std::int64_t>(streams.size() / 3);
  const Tensor random =
      Tensor::empty(world->device(), ranks == 1 ? Shape{3} : Shape{ranks, 3}, DType::I64);
  world->device()->upload(random.data(), streams.data(), streams.size() * sizeof streams[0]);
  values.add(kRandom, random);
  for (const auto& [name, value] : values_) {
    if (const auto* integer = std::get_if<std::int64_t*>(&value))
      values.add(name, tensor_of(world->device(), {}, DType::I64, {**integer}));
    else
      values.add(name, tensor_of(world->device(), {}, DType::F64, {*std::get<double*>(value)}));
  }
  beside.training[kValues] = std::move(values);
  beside.files.merge(module_.folder_files());
  Task<std::unique_ptr<SaveInProgress>> begun = SaveInProgress::begin(
      state_dict(module_), std::move(folder), options, std::move(beside), std::move(how));
  co_return co_await std::move(begun);
}

// Before anything is filled. Error{BadInput}: numbers that were added or left out since, if it is
// `strict`.
void TrainingParts::require_values(const OpenFiles& from, bool strict) const {
  CS_REQUIRE(from.folder.find(kRandom), "load: ", from.path, ": has no '", kRandom, "'");
  if (!strict) return;
  for (const auto& [name, value] : values_)
    CS_REQUIRE(from.folder.find(name), "load: ", from.path, ": has no value '", name,
               "', which was added since; resume({.strict = false}) leaves it as it is");
  for (std::size_t i = 0; i < from.folder.size(); ++i) {
    const std::string name(from.folder[i].tensor.name);
    CS_REQUIRE(name == kRandom || values_.contains(name), "load: ", from.path, ": has a value '",
               shortened(name), "', which is no part of this training; add() it");
  }
}

// What values were; applied once all else has been filled.
struct TrainingParts::ReadValues {
  RandomState random;
  std::map<std::string, Tensor> numbers;  // those that are there
  LoadReport report;
};

Task<TrainingParts::ReadValues> TrainingParts::read_values(std::shared_ptr<const OpenFiles> from,
                                                           bool all) const {
  const std::shared_ptr<Device>& device = World::current()->device();
  State values;
  const Shape streams = stored_streams(from->folder);
  const Tensor random = Tensor::empty(device, streams, DType::I64);
  values.add(kRandom, random);
  ReadValues read;
  for (const auto& [name, value] : values_) {
    const bool integer = std::holds_alternative<std::int64_t*>(value);
    read.numbers[name] = Tensor::empty(device, Shape{}, integer ? DType::I64 : DType::F64);
    values.add(name, read.numbers[name]);
  }
  LoadOptions options;
  options.strict = all;
  options.cast = Cast::Same;
  const std::string& folder = from->path;
  Task<LoadReport> loading = load_files(values, {.path = folder, .open = from}, options);
  read.report = co_await std::move(loading);
  for (const std::string& name : read.report.missing) read.numbers.erase(name);
  std::vector<std::uint64_t> rows(static_cast<std::size_t>(random.numel()));
  device->download(rows.data(), random.const_data(), rows.size() * sizeof rows[0]);
  read.random = own_stream(rows, *World::current(), folder);
  co_return read;
}

void TrainingParts::apply(const ReadValues& read) const {
  for (const auto& [name, number] : read.numbers) {
    const Value& value = values_.at(name);
    if (const auto* integer = std::get_if<std::int64_t*>(&value)) {
      std::int64_t one[1];
      read_numbers(number, one);
      **integer = one[0];
    } else {
      double one[1];
      read_numbers(number, one);
      *std::get<double*>(value) = one[0];
    }
  }
  set_random_state(read.random);
}

void TrainingParts::require_known(const OpenFiles& model, bool all,
                                  std::optional<std::int64_t> step) const {
  const std::string& folder = model.path;
  CS_REQUIRE(model.manifest != nullptr, folder, ": has no ", Manifest::kPath,
             step ? " of a step; remove the folder to resume from the step before, if there is one"
                  : ", so it is no checkpoint of training; load the model alone");
  if (step)
    CS_REQUIRE(model.manifest->step == step, folder, ": is step ",
               model.manifest->step ? str_cat(*model.manifest->step) : "none",
               " by its coshard.json; give the folder that name");
  std::vector<std::string> stems{kValues};
  for (const auto& [name, optimizer] : optimizers_) stems.push_back(name);
  for (const auto& [name, state] : states_) stems.push_back(name);
  const auto is_known = [&](std::string_view file) {
    return std::ranges::any_of(stems, [&](const auto& stem) { return is_part(file, stem); });
  };
  for (const auto& [file, known] : model.manifest->files())
    CS_REQUIRE(!all || !is_part(file, "") || is_known(file), folder, ": has ", file,
               ", which is no part of this training; add() it");
}

// Those that the checkpoint has, by name; null: added since.
Task<TrainingParts::OpenParts> TrainingParts::open(std::string folder, LoadOptions options,
                                                   std::shared_ptr<const OpenFiles> model) const {
  World& world = *World::current();
  OpenParts parts{{kValues, nullptr}};
  for (const auto& [name, optimizer] : optimizers_) parts[name] = nullptr;
  for (const auto& [name, state] : states_) parts[name] = nullptr;
  for (auto& [name, part] : parts) {
    if (!has_part(*model->manifest, name)) {
      CS_REQUIRE(!options.strict && name != kValues, "load: ", folder, ": has no part 'training/",
                 name, "', which was added since; resume({.strict = false}) leaves it as it is");
      continue;
    }
    Task<std::shared_ptr<const OpenFiles>> opened =
        open_files(world, folder, "training/" + name, model);
    part = co_await std::move(opened);
  }
  co_return parts;
}

Task<void> TrainingParts::fill_optimizers(std::string folder, LoadOptions options, OpenParts parts,
                                          LoadReport& report) const {
  LoadOptions any = options;
  any.strict = false;
  for (const auto& [key, optimizer] : optimizers_) {
    const std::string name = "training/" + key;
    const std::shared_ptr<const OpenFiles> there = parts[key];
    if (there == nullptr) continue;
    KeptOptimizer kept{str_cat(folder, "/", name), {}, {}};
    for (std::size_t i = 0; i < there->folder.size(); ++i)
      kept.names.emplace_back(there->folder[i].tensor.name);
    kept.fill = [there, any](State state) {
      return load_files(std::move(state), {.path = there->path, .open = there}, any);
    };
    Task<LoadReport> filled = fill_optimizer(optimizer, module_, std::move(kept), options.strict);
    const LoadReport of_optimizer = co_await std::move(filled);
    add_missing(report, of_optimizer, name);
  }
}

// Of the states of the user. `only_checks`: whether they fit.
Task<void> TrainingParts::fill_states(std::string folder, LoadOptions options, OpenParts parts,
                                      bool only_checks, LoadReport& report) const {
  for (const auto& [name, state] : states_) {
    if (parts[name] == nullptr) continue;
    Task<LoadReport> filled = load_files(
        state, {.path = folder, .open = parts[name], .only_checks = only_checks}, options);
    const LoadReport of_state = co_await std::move(filled);
    if (!only_checks) add_missing(report, of_state, "training/" + name);
  }
}

Task<LoadReport> TrainingParts::load(std::string folder, LoadOptions options, bool all,
                                     std::optional<std::int64_t> step) const {
  World* const world = World::current();
  CS_REQUIRE(world != nullptr, "load: called outside of a rank's program");
  Task<std::shared_ptr<const OpenFiles>> opening = open_files(*world, folder, "model");
  const std::shared_ptr<const OpenFiles> model = co_await std::move(opening);
  require_known(*model, all, step);
  Task<OpenParts> opened = open(folder, options, model);
  OpenParts parts = co_await std::move(opened);
  require_values(*parts[kValues], all && options.strict);
  Task<LoadReport> checked =
      load_module(module_, {.path = folder, .open = model, .only_checks = true}, options);
  LoadReport report = co_await std::move(checked);
  Task<void> fits = fill_states(folder, options, parts, true, report);
  co_await std::move(fits);
  Task<ReadValues> reading = read_values(parts[kValues], all && options.strict);
  const ReadValues values = co_await std::move(reading);
  Task<LoadReport> loading = load_module(module_, {.path = folder, .open = model}, options);
  report = co_await std::move(loading);
  for (const auto& [name, part] : parts)
    if (part == nullptr) report.missing.push_back("training/" + name);
  Task<void> optimizers = fill_optimizers(folder, options, parts, report);
  co_await std::move(optimizers);
  Task<void> states = fill_states(folder, options, parts, false, report);
  co_await std::move(states);
  apply(values);
  add_missing(report, values.report, str_cat("training/", kValues));
  co_return report;
}

}  // namespace coshard
