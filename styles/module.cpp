#include <coshard/styles/module.h>

#include <algorithm>
#include <mutex>
#include <typeinfo>
#include <unordered_set>
#include <utility>

#include <coshard/dtensor/distribute/deferred_init.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape/tape.h>
#include <coshard/runtime/coro/branch.h>
#include <coshard/runtime/launch/world.h>
#include <coshard/styles/recompute.h>
#include <coshard/styles/style.h>
#include "dtensor/ops/recipe.h"
#include "dtensor/redistribute/deferred.h"
#include "dtensor/tape/grad_mode.h"
#include "runtime/coro/user_call.h"
#include "runtime/interned_text.h"
#include "styles/module_state.h"

namespace coshard {
namespace {

// Kept for the process's lifetime: a module's path may outlive it.
const std::string& lasting_path(std::string path) {
  static std::mutex mutex;
  static std::unordered_set<std::string> paths;
  const std::scoped_lock lock(mutex);
  return *paths.insert(std::move(path)).first;
}

struct Outermost {
  Module* module = nullptr;
};
const BranchLocal<Outermost> outermost;

}  // namespace

// A running forward in this branch: the outermost module's, or that of one which must be below it.
class RunningModule {
 public:
  explicit RunningModule(Module& module) : is_outermost_(outermost.get().module == nullptr) {
    if (is_outermost_)
      outermost.own().module = &module;
    else
      module.require_registered_below(*outermost.get().module);
  }
  ~RunningModule() {
    if (is_outermost_) outermost.own().module = nullptr;
  }
  RunningModule(const RunningModule&) = delete;
  RunningModule& operator=(const RunningModule&) = delete;

 private:
  bool is_outermost_;
  MakeNow now_{is_outermost_};
};

Tensor Inputs::get(std::size_t position, std::string_view name) const {
  for (const auto& [key, value] : kwargs)
    if (key == name) return value;
  return position < args.size() ? args[position] : Tensor();
}

// Tells the observers of this rank when a module's forward begins and ends.
class Module::Watch {
 public:
  explicit Watch(Module& module) : world_(World::current()) {
    if (world_ == nullptr || !world_->observed()) {
      world_ = nullptr;
      return;
    }
    path_ = module.path();
    world_->observer().module_enter(path_);
  }
  ~Watch() {
    if (world_ != nullptr) world_->observer().module_exit(path_);
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  World* world_;
  std::string path_;
};

Module::~Module() {
  for (const Child& child : children_)
    if (child.owner && child.owner->parent_ == this) child.owner->parent_ = nullptr;
}

// Notes an error that leaves this module with its path, unless a submodule has done so.
void Module::on_exception(const std::exception_ptr& error) noexcept {
  try {
    if (World* world = World::current()) world->module_left(path(), error);
  } catch (const std::bad_alloc&) {  // the error then names no module
  }
}

Task<Tensor> Module::forward(Tensor x, CallSite site) {
  if (site.known()) return forward_for(site, std::move(x));
  const bool arrives = x.defined() && x.in_flight();
  if (!pre_hooks_.empty() || !post_hooks_.empty() || recompute_ || arrives || has_own_state())
    return forward(Inputs(std::move(x)), site);
  Task<Tensor> body = begin(std::move(x));
  body.set_witness(*this);
  return body;
}

Task<Tensor> Module::begin(Tensor x) {
  const World* world = World::current();
  Module* root = outermost.get().module;
  if (root == nullptr || (world != nullptr && world->observed())) return run_within(std::move(x));
  require_registered_below(*root);
  return run(std::move(x));
}

Task<Tensor> Module::forward_for(CallSite site, Tensor x) {
  const UserCall user(site);
  Task<Tensor> body = forward(std::move(x), CallSite());
  co_return co_await std::move(body);
}

Task<Tensor> Module::run_within(Tensor x) {
  const Watch watch(*this);
  const WithinModule within(path());
  const RunningModule running(*this);
  Task<Tensor> body = run(std::move(x));
  co_return co_await std::move(body);
}

Task<Tensor> Module::forward(Tensor a, Tensor b, CallSite site) {
  return forward(Inputs(std::move(a), std::move(b)), site);
}
Task<Tensor> Module::forward(Tensor a, Tensor b, Tensor c, CallSite site) {
  return forward(Inputs(std::move(a), std::move(b), std::move(c)), site);
}
Task<Tensor> Module::forward(Tensor a, Tensor b, Tensor c, Tensor d, CallSite site) {
  return forward(Inputs(std::move(a), std::move(b), std::move(c), std::move(d)), site);
}

Task<Tensor> Module::forward(Inputs inputs, CallSite site) {
  Task<Outputs> body = call(std::move(inputs), site);
  Outputs outputs = co_await std::move(body);
  CS_REQUIRE(outputs.size() == 1, "forward: ", type_name(), " '", path(), "' returned ",
             outputs.size(), " outputs; use call()");
  co_return std::move(outputs.front());
}

Task<Outputs> Module::call(Inputs inputs, CallSite site) {
  Task<Outputs> body =
      recompute_ ? recompute(*this, std::move(inputs), site) : call_once(std::move(inputs), site);
  body.set_witness(*this);
  return body;
}

// Whether `run` multiplies the shards of its first input as they arrive.
bool Module::left_arriving(const Tensor& x) const {
  if (!arrives_by_shards(x) || (has_own_state() && state_->casts(x))) return false;
  const InputProducts products = input_products();
  multiply_together(x, products.weights);
  return !products.weights.empty() && products.overlap != Overlap::Off;
}

Task<Outputs> Module::call_once(Inputs inputs, CallSite site) {
  const UserCall user(site);
  const Watch watch(*this);
  const WithinModule within(path());
  const RunningModule running(*this);
  if (training_ && grad_enabled()) forwards_ = std::min(forwards_ + 1, 3);
  std::vector<Tensor> arriving;
  std::shared_ptr<void> whole;  // its parameters, until the forward ends, also by an error
  if (has_own_state()) {
    whole = state_->enter(arriving);
    state_->cast_inputs(inputs);
  }
  // All hooks issue what they need before anything is awaited.
  for (const PreHook& hook : pre_hooks_) hook(*this, inputs);
  bool first = true;
  const auto note = [&](const Tensor& x) {
    const bool left = std::exchange(first, false) && left_arriving(x);
    if (x.defined() && x.in_flight() && !left) arriving.push_back(x);
  };
  for (const Tensor& x : inputs.args) note(x);
  for (const auto& named : inputs.kwargs) note(named.second);
  if (!arriving.empty()) {
    Task<void> arrived = arrival_of(std::move(arriving));
    co_await std::move(arrived);
  }
  if (has_own_state()) state_->cast_inputs(inputs);  // what a pre-hook has issued
  const std::uint64_t behind = has_own_state() ? newest_behind(inputs) : 0;
  Task<Outputs> body = run_all(std::move(inputs));
  Outputs outputs = co_await std::move(body);
  for (const PostHook& hook : post_hooks_) hook(*this, outputs);
  if (has_own_state()) state_->leave(outputs, behind);
  const bool casts = has_own_state() && state_->casts(outputs);
  if (!casts && (post_hooks_.empty() || redistributes_are_deferred())) co_return outputs;
  // Awaiting nothing would still queue this branch behind siblings that wait for collectives.
  const auto arrives = [](const Tensor& y) { return y.defined() && y.in_flight(); };
  if (std::ranges::any_of(outputs, arrives)) {
    Task<void> arrived = arrival_of(outputs);
    co_await std::move(arrived);
  }
  if (casts) state_->cast_outputs(outputs);
  co_return outputs;
}

Task<Tensor> Module::run(Tensor x) {
  Inputs inputs(std::move(x));
  wrapping_ = true;
  Task<Outputs> body = run_all(std::move(inputs));
  Outputs outputs = co_await std::move(body);
  wrapping_ = false;
  CS_REQUIRE(outputs.size() == 1, "forward: ", type_name(), " '", path(), "' returned ",
             outputs.size(), " outputs; use call()");
  co_return std::move(outputs.front());
}

Task<Outputs> Module::run_all(Inputs inputs) {
  CS_REQUIRE(!wrapping_, "forward: ", type_name(), " '", path(),
             "' overrides neither run nor run_all");
  CS_REQUIRE(inputs.args.size() == 1 && inputs.kwargs.empty() && inputs.args.front().defined(),
             "forward: ", type_name(), " '", path(), "' takes one tensor by position, got ",
             inputs.args.size(), " by position and ", inputs.kwargs.size(), " by keyword",
             inputs.args.size() == 1 && inputs.kwargs.empty() ? " (undefined)" : "");
  Task<Tensor> body = run(std::move(inputs.args.front()));
  Outputs outputs;
  outputs.push_back(co_await std::move(body));
  co_return outputs;
}

void Module::check_name(const std::string& name) const {
  CS_REQUIRE(!name.empty() && name.find('.') == std::string::npos, "register: '", name,
             "' is not a name; it must have a character and no dot");
  for (const auto& [taken, slot] : parameters_)
    CS_REQUIRE(taken != name, "register: ", type_name(), " already has a parameter '", name,
               "' already");
  for (const NamedBuffer& buffer : buffers_)
    CS_REQUIRE(buffer.name != name, "register: ", type_name(), " already has a buffer '", name,
               "'");
  for (const Child& child : children_)
    CS_REQUIRE(child.name != name, "register: ", type_name(), " has a module '", name, "' already");
}

void Module::register_parameter(std::string name, Tensor& slot) {
  check_name(name);
  name_values(slot, str_cat("parameter '", name, "'"));
  parameters_.emplace_back(std::move(name), &slot);
}

void Module::register_buffer(std::string name, Tensor& slot, bool persistent) {
  check_name(name);
  name_values(slot, str_cat("buffer '", name, "'"));
  buffers_.push_back({std::move(name), &slot, persistent});
}

void Module::register_module(std::string name, Module& child) {
  check_name(name);
  child.parent_ = this;
  child.name_ = name;
  child.forget_paths();
  child.name_values_below();
  children_.push_back({std::move(name), &child, nullptr});
}

void Module::register_module(std::string name, std::shared_ptr<Module> child) {
  CS_REQUIRE(child, "register_module: '", name, "' is null");
  register_module(std::move(name), *child);
  children_.back().owner = std::move(child);
}

void Module::forget_paths() {
  for (const NamedModule& below : named_modules()) below.module->path_ = nullptr;
}

// What has no memory yet learns the path of its module, as far as it is known.
void Module::name_values_below() {
  if (!defers_init()) return;
  for (const NamedParameter& p : named_slots())
    name_values(*p.slot, str_cat("parameter '", path(), ".", p.name, "'"));
  for (const NamedBuffer& b : named_buffers())
    name_values(*b.slot, str_cat("buffer '", path(), ".", b.name, "'"));
}

bool Module::is_below(const Module& root) const {
  for (const Module* above = this; above != nullptr; above = above->parent_)
    if (above == &root) return true;
  return false;
}

// Whether its forward gathers the parameters of its group.
bool Module::has_own_state() const { return state_ && &state_->module() == this; }

// A module with several parents knows only one of them, so this may have to search from the root.
void Module::require_registered_below(Module& root) {
  if (is_below(root) || !grad_enabled()) return;
  const auto trains = [](const NamedParameter& p) { return p.slot->requires_grad(); };
  if (std::ranges::none_of(named_slots(), trains)) return;
  const auto is_this = [this](const NamedModule& m) { return m.module == this; };
  CS_REQUIRE(std::ranges::any_of(root.named_modules(), is_this), "forward: ", type_name(), " '",
             path(), "' runs inside ", root.type_name(), " '", root.path(),
             "', which has not registered it: its parameters would be missing from those of ",
             root.type_name(), "; call register_module, or set_requires_grad(false)");
}

void Module::claim(std::string what) {
  CS_REQUIRE(std::ranges::find(claims_, what) == claims_.end(), "parallelize_module: ", type_name(),
             " '", path(), "' was already ", what,
             "; a second time would convert its tensors twice");
  claims_.push_back(std::move(what));
}

const std::string& Module::path() {
  if (path_ == nullptr) {
    const std::string above = parent_ != nullptr ? parent_->path() : "";
    path_ = &lasting_path(above.empty() ? name_ : above + "." + name_);
  }
  return *path_;
}

std::string Module::type_name() const { return type_name_of(typeid(*this)); }

std::vector<NamedModule> Module::named_modules() {
  std::vector<NamedModule> found;
  std::unordered_set<Module*> seen;
  const std::function<void(Module&, const std::string&)> visit = [&](Module& module,
                                                                     const std::string& path) {
    if (!seen.insert(&module).second) return;
    found.push_back({path, &module});
    for (const Child& child : module.children_)
      visit(*child.module, path.empty() ? child.name : path + "." + child.name);
  };
  visit(*this, "");
  return found;
}

std::vector<NamedParameter> Module::named_slots() {
  std::vector<NamedParameter> found;
  for (const auto& [path, module] : named_modules())
    for (const auto& [name, slot] : module->parameters_)
      if (slot->defined()) found.push_back({path.empty() ? name : path + "." + name, slot});
  return found;
}

std::vector<NamedBuffer> Module::named_buffers() {
  std::vector<NamedBuffer> found;
  for (const auto& [path, module] : named_modules())
    for (const NamedBuffer& b : module->buffers_)
      if (b.slot->defined())
        found.push_back({path.empty() ? b.name : path + "." + b.name, b.slot, b.persistent});
  return found;
}

std::vector<NamedParameter> Module::named_parameters() {
  std::vector<NamedParameter> found = named_slots();
  std::unordered_set<const void*> seen;
  std::erase_if(found, [&](const NamedParameter& p) { return !seen.insert(p.slot->id()).second; });
  return found;
}

std::vector<Tensor> Module::parameters(CallSite site) {
  const UserCall user(site);
  std::vector<Tensor> tensors;
  for (const NamedParameter& p : named_parameters()) {
    const std::shared_ptr<GradMeta>& meta = p.slot->grad_meta();
    if (meta && meta->name.empty())
      meta->name = interned(path().empty() ? p.name : str_cat(path(), ".", p.name));
    if (meta && is_deferred(*p.slot)) name_values(*p.slot, str_cat("parameter '", meta->name, "'"));
    tensors.push_back(*p.slot);
  }
  return tensors;
}

Tensor& Module::parameter(std::string_view name) {
  std::string known;
  for (const NamedParameter& p : named_slots()) {
    if (p.name == name) return *p.slot;
    known += known.empty() ? p.name : ", " + p.name;
  }
  fail(ErrorKind::BadInput,
       str_cat("parameter: ", type_name(), " has no '", name, "'; it has: ", known));
}

Module* Module::find(std::string_view path) {
  for (const NamedModule& below : named_modules())
    if (below.path == path) return below.module;
  return nullptr;
}

void Module::zero_grad() {
  for (const Tensor& p : parameters()) p.set_grad({});
}

void Module::train(bool on) {
  for (const NamedModule& below : named_modules()) below.module->training_ = on;
}

}  // namespace coshard
