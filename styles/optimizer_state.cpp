#include "styles/optimizer_state.h"

#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include <coshard/styles/training_state.h>
#include "dtensor/checkpoint/fit.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

// Of the optimizer's parameters, in their order.
std::vector<std::string> names_of(Optimizer& optimizer, Module& module) {
  std::unordered_map<const void*, std::string> names;
  for (const NamedParameter& p : module.named_slots()) names.emplace(p.slot->id(), p.name);
  std::vector<std::string> all;
  for (const Tensor& p : optimizer.parameters()) {
    const auto found = names.find(p.id());
    CS_REQUIRE(found != names.end(), "state_dict: the optimizer steps ", p, ", which ",
               module.type_name(),
               " does not have; register_parameter it there, and make the optimizer "
               "after styles and fully_shard (and save while parameters are sharded)");
    all.push_back(found->second);
  }
  return all;
}

Tensor number(Optimizer& optimizer, DType dtype, double value) {
  return Tensor::from_values(optimizer.parameters()[0].device(), {}, dtype, {value});
}

// What is no moment: how often each parameter has been stepped, and the rate.
struct StepCounts {
  State state;
  std::vector<Tensor> steps;  // undefined: does not count, or is not there
  Tensor rate;

  // Room for those of whose names `has` knows.
  StepCounts(Optimizer& optimizer, const std::vector<std::string>& names,
             const std::function<bool(const std::string&)>& has)
      : steps(names.size()), rate(number(optimizer, DType::F64, optimizer.lr)) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      const std::int64_t count = optimizer.steps_of(i);
      if (count < 0 || !has(names[i] + ".step")) continue;
      steps[i] = number(optimizer, DType::I64, static_cast<double>(count));
      state.add(names[i] + ".step", steps[i]);
    }
    state.add("lr", rate);
  }
  void start(Optimizer& optimizer) const {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const auto count = steps[i].defined() ? static_cast<std::int64_t>(steps[i].item()) : 0;
      CS_REQUIRE(count >= 0, "load: parameter number ", i, " has ", count, " steps");
      optimizer.start(i, count);
    }
    optimizer.lr = rate.item();
  }
};

State with_moments(const StepCounts& counts, Optimizer& optimizer,
                   const std::vector<std::string>& names) {
  State state = counts.state;
  for (std::size_t i = 0; i < names.size(); ++i)
    for (const Optimizer::Moment& moment : optimizer.moments(i))
      state.add(names[i] + "." + std::string(moment.name), moment.tensor);
  return state;
}

// What the started optimizer has and `there` lacks, and the reverse: names of parameters of which
// nothing is known, and of single entries of the others. Those that lack any are new afterwards.
LoadReport differences(Optimizer& optimizer, const std::vector<std::string>& names,
                       const std::set<std::string>& there) {
  LoadReport report;
  std::set<std::string> known{"lr"};
  const auto has = [&](const std::string& name, const std::string& otherwise) {
    known.insert(name);
    const bool found = there.contains(name);
    if (!found) report.missing.push_back(otherwise);
    return found;
  };
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (optimizer.steps_of(i) < 0 || !has(names[i] + ".step", names[i])) continue;
    bool whole = true;
    for (const Optimizer::Moment& moment : optimizer.moments(i)) {
      const std::string name = names[i] + "." + std::string(moment.name);
      whole = has(name, name) && whole;
    }
    if (!whole) optimizer.start(i, 0);
  }
  has("lr", "lr");
  const std::set<std::string> parameters(names.begin(), names.end());
  for (const std::string& name : there) {
    if (known.contains(name)) continue;
    const std::string parameter = name.substr(0, name.rfind('.'));
    const std::string& told = parameters.contains(parameter) ? name : parameter;
    if (report.unexpected.empty() || report.unexpected.back() != told)
      report.unexpected.push_back(told);
  }
  return report;
}

void require_none(const LoadReport& report, const std::string& path) {
  Complaints complaints;
  if (!report.missing.empty())
    complaints.add("lacks ", first_of(report.missing),
                   ", which start as new if LoadOptions::strict is false");
  if (!report.unexpected.empty())
    complaints.add("has ", first_of(report.unexpected), ", which the optimizer does not have");
  complaints.require_none("load: " + path);
}

}  // namespace

Task<LoadReport> fill_optimizer(Optimizer& optimizer, Module& module, KeptOptimizer kept,
                                bool strict) {
  const std::vector<std::string> names = names_of(optimizer, module);
  const std::set<std::string> there(kept.names.begin(), kept.names.end());
  const StepCounts counts(optimizer, names,
                          [&](const std::string& name) { return there.contains(name); });
  LoadReport report;
  std::exception_ptr failed;
  const double rate = optimizer.lr;
  try {
    Task<LoadReport> counted = kept.fill(counts.state);
    co_await std::move(counted);
    counts.start(optimizer);
    report = differences(optimizer, names, there);
    if (strict) require_none(report, kept.path);
    Task<LoadReport> filled = kept.fill(with_moments(counts, optimizer, names));
    const LoadReport read = co_await std::move(filled);
    report.cast = read.cast, report.bytes = read.bytes;
  } catch (...) {
    failed = std::current_exception();
  }
  if (!failed) co_return report;
  for (std::size_t i = 0; i < names.size(); ++i) optimizer.start(i, 0);
  optimizer.lr = rate;
  std::rethrow_exception(failed);
}

State state_dict(Optimizer& optimizer, Module& module) {
  const std::vector<std::string> names = names_of(optimizer, module);
  const StepCounts counts(optimizer, names, [](const std::string&) { return true; });
  return with_moments(counts, optimizer, names);
}

Task<LoadReport> load_state_dict(Optimizer& optimizer, Module& module, State values,
                                 LoadOptions options, CallSite site) {
  const UserCall user(site);
  KeptOptimizer kept{"the state of an optimizer", {}, {}};
  for (const NamedState& entry : values) {
    kept.names.push_back(entry.name);
    kept.names.insert(kept.names.end(), entry.also.begin(), entry.also.end());
  }
  const bool strict = options.strict;
  options.strict = false;
  kept.fill = [values, options](State state) {
    return copy_state(values, std::move(state), options);
  };
  Task<LoadReport> filled = fill_optimizer(optimizer, module, std::move(kept), strict);
  co_return co_await std::move(filled);
}

}  // namespace coshard
