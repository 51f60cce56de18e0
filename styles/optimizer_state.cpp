#include "styles/optimizer_state.h"

#include <unordered_map>
#include <utility>
#include <vector>

#include <coshard/styles/training_state.h>
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
  std::vector<Tensor> steps;  // undefined: not stepped
  Tensor rate;

  // Room for those of whose names `has` knows.
  StepCounts(Optimizer& optimizer, const std::vector<std::string>& names,
             const std::function<bool(const std::string&)>& has)
      : steps(names.size()), rate(number(optimizer, DType::F64, optimizer.lr)) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (!has(names[i] + ".step")) continue;
      steps[i] = number(optimizer, DType::I64, static_cast<double>(optimizer.steps_of(i)));
      state.add(names[i] + ".step", steps[i]);
    }
    state.add("lr", rate);
  }
  void start(Optimizer& optimizer) const {
    for (std::size_t i = 0; i < steps.size(); ++i)
      optimizer.start(i, steps[i].defined() ? static_cast<std::int64_t>(steps[i].item()) : 0);
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

}  // namespace

Task<LoadReport> fill_optimizer(Optimizer& optimizer, Module& module, Fill fill,
                                std::function<bool(const std::string&)> has) {
  const std::vector<std::string> names = names_of(optimizer, module);
  const StepCounts counts(optimizer, names, has);
  Task<LoadReport> counted = fill(counts.state, false);
  co_await std::move(counted);
  counts.start(optimizer);
  LoadReport report;
  std::exception_ptr failed;
  try {
    Task<LoadReport> filled = fill(with_moments(counts, optimizer, names), true);
    report = co_await std::move(filled);
  } catch (...) {
    failed = std::current_exception();
  }
  if (!failed) co_return report;
  for (std::size_t i = 0; i < names.size(); ++i) optimizer.start(i, 0);
  std::rethrow_exception(failed);
}

State state_dict(Optimizer& optimizer, Module& module) {
  const std::vector<std::string> names = names_of(optimizer, module);
  std::unordered_map<std::string, std::int64_t> steps;
  for (std::size_t i = 0; i < names.size(); ++i) steps[names[i] + ".step"] = optimizer.steps_of(i);
  const StepCounts counts(optimizer, names,
                          [&](const std::string& name) { return steps[name] > 0; });
  return with_moments(counts, optimizer, names);
}

Task<LoadReport> load_state_dict(Optimizer& optimizer, Module& module, State values,
                                 LoadOptions options, CallSite site) {
  const UserCall user(site);
  const Fill fill = [&values, options](State state, bool strict) {
    LoadOptions now = options;
    now.strict = strict && options.strict;
    return copy_state(values, std::move(state), now);
  };
  const auto has = [&values](const std::string& name) { return values.find(name) != nullptr; };
  Task<LoadReport> filled = fill_optimizer(optimizer, module, fill, has);
  co_return co_await std::move(filled);
}

}  // namespace coshard
