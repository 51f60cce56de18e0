#include <algorithm>

#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/optim/optimizer.h>
#include "dtensor/capture/step_graph.h"
#include "dtensor/ops/local.h"
#include "dtensor/optim/gradients.h"
#include "kernels/run.h"

namespace coshard {
namespace {

void* written(const Tensor& state) { return state.defined() ? state.address() : nullptr; }

}  // namespace

// Parameters of one dtype that have been updated equally often.
struct AdamW::Group {
  const Tensor* first;
  std::int64_t step;
  std::vector<std::size_t> members;
  std::vector<kernels::AdamWTensor> tensors;
};

AdamW::AdamW(std::vector<Tensor> parameters, AdamWOptions options)
    : Optimizer(std::move(parameters)), options_(options), states_(parameters_.size()) {
  CS_REQUIRE(options.lr >= 0 && options.eps >= 0 && options.weight_decay >= 0, "AdamW: lr ",
             options.lr, ", eps ", options.eps, ", weight_decay ", options.weight_decay,
             ": must not be negative");
  for (const double beta : options.betas)
    CS_REQUIRE(beta >= 0 && beta < 1, "AdamW: beta ", beta, " is outside [0, 1)");
  lr = options.lr;
}

void AdamW::make(State& s, const Tensor& p) const {
  require_not_recording(*p.device(), "AdamW", "allocate the moments of a parameter");
  const DType dtype = statistic_dtype(p.dtype());
  s.m = zeros(p.device(), p.local_shape(), dtype);
  s.v = zeros(p.device(), p.local_shape(), dtype);
  if (options_.amsgrad) s.largest_v = zeros(p.device(), p.local_shape(), dtype);
  if (p.dtype() == DType::BF16 || p.dtype() == DType::F16)
    s.master = Tensor::empty(p.device(), p.local_shape(), DType::F32);
}

std::vector<Optimizer::Moment> AdamW::moments(std::size_t i) const {
  const State& s = states_[i];
  const Tensor& p = parameters_[i];
  if (s.step > 0 && s.master.defined() && s.version != p.storage()->changes())  // as the next step
    kernels::run(*p.device(), kernels::Copy{view_of(s.master), view_of(p)});
  std::vector<Moment> all;
  const auto add = [&](std::string_view name, const Tensor& local) {
    if (s.step > 0 && local.defined()) all.push_back({name, as_parameter(local, parameters_[i])});
  };
  add("exp_avg", s.m);
  add("exp_avg_sq", s.v);
  add("max_exp_avg_sq", s.largest_v);
  add("master", s.master);
  return all;
}

void AdamW::start(std::size_t i, std::int64_t steps) {
  State& s = states_[i];
  if (steps == 0) {
    if (s.m.defined()) state_is_lost();
    s = State();
    return;
  }
  if (!s.m.defined()) make(s, parameters_[i]);  // else in place, where captured steps read them
  s.step = steps;
  s.version = parameters_[i].storage()->changes();
}

kernels::AdamW AdamW::arguments(DType dtype, std::int64_t step) const {
  return {dtype,
          {},
          lr,
          options_.betas[0],
          options_.betas[1],
          options_.eps,
          options_.weight_decay,
          options_.maximize ? -1.0 : 1.0,
          step};
}

// Advances the members' step count, which must be the same for all in a captured step.
std::int64_t AdamW::count_step(const std::vector<std::size_t>& members) {
  const std::int64_t step = states_[members.front()].step + 1;
  for (const std::size_t i : members) {
    CS_REQUIRE(
        !states_[i].master.defined() || states_[i].version == parameters_[i].storage()->changes(),
        "AdamW: ", parameters_[i],
        " was written to since the last step; a captured step goes on "
        "from its master copy");
    CS_REQUIRE(states_[i].step + 1 == step, "AdamW: ", parameters_[i], " has been updated ",
               states_[i].step, " times, but another parameter of the captured step ", step - 1);
    states_[i].step = step;
  }
  return step;
}

void AdamW::run(const Group& group) {
  const DType dtype = group.first->dtype();
  kernels::AdamW args = arguments(dtype, group.step);
  args.tensors = group.tensors;
  if (StepGraph* step = StepGraph::recording())
    args.rates = step->numbers(kernels::adamw_rates(args), [this, alive = std::weak_ptr(alive_),
                                                            dtype, members = group.members](
                                                               std::span<double> rates) {
      require_alive(alive, "AdamW");
      std::ranges::copy(kernels::adamw_rates(arguments(dtype, count_step(members))), rates.begin());
    });
  kernels::run(*group.first->device(), args);
}

// Notes the version just written; each replay notes it again after its writes.
void AdamW::wrote(std::size_t i) {
  parameters_[i].mark_written();
  const auto note = [this, i] { states_[i].version = parameters_[i].storage()->changes(); };
  note();
  if (StepGraph* step = StepGraph::recording())
    step->on_replay([note, alive = std::weak_ptr(alive_)] {
      if (!alive.expired()) note();
    });
}

// Groups parameters of one dtype that have been updated equally often.
void AdamW::update() {
  std::vector<Group> groups;
  std::vector<Tensor> gradients;                     // alive until the kernels are enqueued
  std::vector<std::pair<Tensor, Tensor>> in_copies;  // parameters, and their memory until then
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& p = parameters_[i];
    const Tensor g = gradient_of(p);
    if (!g.defined()) continue;
    p.wait_for_readers("AdamW");
    State& s = states_[i];
    if (s.step == 0) make(s, p);
    if (s.master.defined() && (s.step == 0 || s.version != p.storage()->changes())) {
      require_not_recording(*p.device(), "AdamW", "refresh the master copy of a parameter");
      kernels::run(*p.device(), kernels::Copy{view_of(s.master), view_of(p)});
    }
    ++s.step;
    auto group = std::ranges::find_if(groups, [&](const Group& known) {
      return known.step == s.step && known.first->dtype() == p.dtype();
    });
    if (group == groups.end()) group = groups.insert(group, Group{&p, s.step, {}, {}});
    group->members.push_back(i);
    const Tensor updated = rows_to_update(p, "AdamW");
    if (updated.id() != p.id()) in_copies.emplace_back(p, updated);
    group->tensors.push_back({p.local_numel(), updated.data(), g.const_data(), s.m.address(),
                              s.v.address(), written(s.master), written(s.largest_v)});
    gradients.push_back(g);
  }
  for (const Group& group : groups) run(group);
  for (const auto& [p, updated] : in_copies)
    kernels::run(*p.device(), kernels::Copy{view_of(p), view_of(updated)});
  for (const Group& group : groups)
    for (const std::size_t i : group.members) wrote(i);
}

}  // namespace coshard
