#include "tools/conform/modules.h"

#include <algorithm>
#include <limits>

#include <coshard/styles/loss_parallel.h>
#include <coshard/styles/recompute.h>
#include "tools/conform/module_spec.h"

namespace coshard::conform {
namespace {

Module& module_called(const Program& p, const Json& name) {
  const auto found = p.modules->modules.find(name.get<std::string>());
  CS_REQUIRE(found != p.modules->modules.end(), "undefined module ", name.dump());
  return *found->second;
}

Optimizer& optimizer_called(const Program& p, const Json& name) {
  const auto found = p.modules->optimizers.find(name.get<std::string>());
  CS_REQUIRE(found != p.modules->optimizers.end(), "undefined optimizer ", name.dump());
  return *found->second;
}

// One parameter in two slots.
void tie(Module& module, const Json& step) {
  if (!step.contains("tie") || step.at("tie").is_null()) return;
  for (const auto& [name, other] : step.at("tie").items())
    module.parameter(name) = module.parameter(other.get<std::string>());
}

// Puts a tensor into a parameter's slot and the slots tied to it.
void set_parameter(Module& module, const std::string& name, const Tensor& value) {
  const void* before = module.parameter(name).id();
  for (const NamedParameter& parameter : module.named_slots())
    if (parameter.slot->id() == before) *parameter.slot = value;
}

void run_module(Program& p, const Json& step) {
  const std::shared_ptr<Module> module = make_module(step.at("spec"), p.world);
  for (const auto& [name, key] : step.at("params").items()) {
    Tensor loaded = p.load(key.get<std::string>());
    loaded.set_requires_grad(true);
    set_parameter(*module, name, loaded);
  }
  tie(*module, step);
  for (const NamedParameter& parameter : module->named_parameters())
    CS_REQUIRE(step.at("params").contains(parameter.name), "module: no tensor for '",
               parameter.name, "'");
  if (step.contains("frozen"))
    for (const Json& name : step.at("frozen"))
      module->parameter(name.get<std::string>()).set_requires_grad(false);
  CS_REQUIRE(p.modules->modules.emplace(step.at("out"), module).second, "module '",
             step.at("out").get<std::string>(), "' is made twice");
}

Task<void> run_parallelize(Program& p, const Json& step) {
  Module& module = module_called(p, step.at("module"));
  ParallelizeOptions options;
  if (step.contains("src_data_rank")) {
    options.src_data_rank.reset();
    if (!step.at("src_data_rank").is_null())
      options.src_data_rank = step.at("src_data_rank").get<int>();
  }
  ParallelPlan plan = plan_of(step.at("plan"));
  Task<void> cut = parallelize_module(module, p.mesh_of(step), std::move(plan), options);
  co_await std::move(cut);
  tie(module, step);
}

Task<void> run_call(Program& p, const Json& step) {
  Module& module = module_called(p, step.at("module"));
  Inputs inputs;
  for (const Json& name : step.at("in"))
    inputs.args.push_back(name.is_null() ? Tensor() : p.value(name));
  if (step.contains("kwargs"))
    for (const auto& [keyword, name] : step.at("kwargs").items())
      inputs.keyword(keyword, name.is_null() ? Tensor() : p.value(name.get<std::string>()));
  const bool again = step.value("recompute", false);
  Task<Outputs> body =
      again ? recompute(module, std::move(inputs)) : module.call(std::move(inputs));
  const Outputs outputs = co_await std::move(body);
  const Json& names = step.at("out");
  for (std::size_t i = 0; i < names.size(); ++i) {
    const bool given = i < outputs.size() && outputs[i].defined();
    CS_REQUIRE(given != names[i].is_null(), "call: output ", i, " is ",
               given ? "present" : "missing", ", the case has ", names[i].dump());
    if (given) p.assign(names[i], outputs[i]);
  }
  CS_REQUIRE(outputs.size() <= names.size(), "call: ", outputs.size(), " outputs for ",
             names.dump());
}

Reduction loss_reduction_of(const Json& attrs) {
  const std::string name = attrs.value("reduction", "mean");
  if (name == "none") return Reduction::None;
  if (name == "sum") return Reduction::Sum;
  CS_REQUIRE(name == "mean", "unknown reduction '", name, "'");
  return Reduction::Mean;
}

Task<void> run_loss(Program& p, const Json& step) {
  static const Json none = Json::object();
  const Json& attrs = step.contains("attrs") ? step.at("attrs") : none;
  const Tensor logits = p.value(step.at("in").at(0));
  const Tensor target = p.value(step.at("in").at(1));
  LossParallelOptions options;
  options.reduction = loss_reduction_of(attrs);
  options.ignore_index = attrs.value("ignore_index", std::int64_t{-100});
  options.label_smoothing = attrs.value("label_smoothing", 0.0);
  options.class_dim = attrs.value("class_dim", logits.ndim() == 1 ? 0 : 1);
  Tensor weight;
  if (attrs.contains("weight") && !attrs.at("weight").is_null())
    weight = p.load(attrs.at("weight").get<std::string>());
  Task<Tensor> body = loss_parallel_cross_entropy(logits, target, options, weight);
  const Tensor loss = co_await std::move(body);
  p.assign(step.at("out"), loss);
}

// An unknown hyper-parameter is an error.
void require_known(const Json& step, std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : step.items())
    CS_REQUIRE(std::find(known.begin(), known.end(), key) != known.end(), "optimizer: '", key,
               "' is not known");
}

std::unique_ptr<Optimizer> make_sgd(std::vector<Tensor> parameters, const Json& step) {
  require_known(step, {"do", "out", "kind", "module", "lr", "momentum", "weight_decay", "dampening",
                       "nesterov", "maximize"});
  const SGDOptions options{.lr = step.value("lr", 1e-3),
                           .momentum = step.value("momentum", 0.0),
                           .weight_decay = step.value("weight_decay", 0.0),
                           .dampening = step.value("dampening", 0.0),
                           .nesterov = step.value("nesterov", false),
                           .maximize = step.value("maximize", false)};
  return std::make_unique<SGD>(std::move(parameters), options);
}

std::unique_ptr<Optimizer> make_adamw(std::vector<Tensor> parameters, const Json& step) {
  require_known(step, {"do", "out", "kind", "module", "lr", "betas", "eps", "weight_decay",
                       "amsgrad", "maximize"});
  AdamWOptions options;
  options.lr = step.value("lr", options.lr);
  if (step.contains("betas")) {
    options.betas[0] = step.at("betas").at(0);
    options.betas[1] = step.at("betas").at(1);
  }
  options.eps = step.value("eps", options.eps);
  options.weight_decay = step.value("weight_decay", options.weight_decay);
  options.amsgrad = step.value("amsgrad", false);
  options.maximize = step.value("maximize", false);
  return std::make_unique<AdamW>(std::move(parameters), options);
}

void run_optimizer(Program& p, const Json& step) {
  std::vector<Tensor> parameters = module_called(p, step.at("module")).parameters();
  const std::string kind = step.at("kind");
  CS_REQUIRE(kind == "SGD" || kind == "AdamW", "unknown optimizer '", kind,
             "'; expected SGD or AdamW");
  std::unique_ptr<Optimizer> made = kind == "SGD" ? make_sgd(std::move(parameters), step)
                                                  : make_adamw(std::move(parameters), step);
  const bool fresh = p.modules->optimizers.emplace(step.at("out"), std::move(made)).second;
  CS_REQUIRE(fresh, "optimizer ", step.at("out").dump(), " is defined twice");
}

// `all_reduce_grads` [mesh dimension, "sum" or "avg"].
void reduce_replicas(const Program& p, const Json& step, const std::vector<Tensor>& parameters) {
  if (!step.contains("all_reduce_grads") || step.at("all_reduce_grads").is_null()) return;
  const std::string name = step.at("all_reduce_grads").at(0);
  const std::string how = step.at("all_reduce_grads").at(1);
  CS_REQUIRE(how == "sum" || how == "avg", "all_reduce_grads: unknown reduction '", how,
             "'; expected sum or avg");
  const auto& names = p.mesh.names();
  const auto found = std::find(names.begin(), names.end(), name);
  CS_REQUIRE(found != names.end(), "all_reduce_grads: no mesh dimension '", name, "' in ", p.mesh);
  all_reduce_gradients(parameters, p.mesh, static_cast<int>(found - names.begin()),
                       how == "sum" ? Reduce::Sum : Reduce::Avg);
}

Task<void> run_optimizer_step(Program& p, const Json& step) {
  Optimizer& optimizer = optimizer_called(p, step.at("optimizer"));
  reduce_replicas(p, step, optimizer.parameters());
  Task<void> stepped = optimizer.step();
  co_await std::move(stepped);
}

Task<void> run_clip(Program& p, const Json& step) {
  const std::vector<Tensor> parameters = module_called(p, step.at("module")).parameters();
  reduce_replicas(p, step, parameters);
  double norm_type = 2;
  if (step.contains("norm_type")) {
    const Json& given = step.at("norm_type");
    norm_type = given.is_string() ? std::numeric_limits<double>::infinity() : given.get<double>();
  }
  Task<Tensor> clipped = clip_grad_norm(parameters, step.at("max_norm"), norm_type);
  const Tensor norm = co_await std::move(clipped);
  DType dtype = DType::F32;
  for (const Tensor& parameter : parameters)
    if (parameter.grad().defined()) dtype = parameter.grad().dtype();
  p.assign(step.at("out"), to(norm, dtype));
}

}  // namespace

Task<bool> run_module_step(Program& p, const Json& step) {
  const std::string kind = step.at("do");
  if (kind == "module") {
    run_module(p, step);
  } else if (kind == "parallelize") {
    co_await run_parallelize(p, step);
  } else if (kind == "call") {
    co_await run_call(p, step);
  } else if (kind == "loss_parallel") {
    co_await run_loss(p, step);
  } else if (kind == "optimizer") {
    run_optimizer(p, step);
  } else if (kind == "optimizer_step") {
    co_await run_optimizer_step(p, step);
  } else if (kind == "zero_grad") {
    optimizer_called(p, step.at("optimizer")).zero_grad();
  } else if (kind == "clip_grad_norm") {
    co_await run_clip(p, step);
  } else {
    co_return false;
  }
  co_return true;
}

Tensor find_parameter(const Program& p, const std::string& name) {
  const std::size_t dot = name.find('.');
  if (dot == std::string::npos) return {};
  const auto found = p.modules->modules.find(name.substr(0, dot));
  if (found == p.modules->modules.end()) return {};
  for (const NamedParameter& parameter : found->second->named_slots())
    if (parameter.name == name.substr(dot + 1)) return *parameter.slot;
  return {};
}

}  // namespace coshard::conform
