#pragma once
// Module: a part of a model, with named parameters, named sub-modules, and hooks around its
// forward. Owned by the user, as a member of its parent or by shared_ptr; neither copied nor moved.
// Belongs to the rank's thread.
//
//   struct Mlp : cs::Module {
//     explicit Mlp(cs::World& world) : up(world, 8, 32), down(world, 32, 8) {
//       register_module("up", up);
//       register_module("down", down);
//     }
//     cs::Task<cs::Tensor> run(cs::Tensor x) override {
//       cs::Tensor hidden = co_await up.forward(x);
//       co_return co_await down.forward(cs::gelu(hidden));
//     }
//     cs::nn::Linear up, down;
//   };
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

#include <coshard/dtensor/tensor.h>
#include <coshard/runtime/coro/task.h>

namespace coshard {

class Module;

// What a forward is called with: by position (an undefined tensor is a None) and by keyword.
struct Inputs {
  Inputs() = default;
  template <class... Rest>
  explicit Inputs(Tensor first, Rest... rest) : args{std::move(first), std::move(rest)...} {}
  Inputs& keyword(std::string name, Tensor value) {
    kwargs.emplace_back(std::move(name), std::move(value));
    return *this;
  }
  // The argument called `name`, or else number `position`; undefined when neither was given.
  Tensor get(std::size_t position, std::string_view name) const;

  std::vector<Tensor> args;
  std::vector<std::pair<std::string, Tensor>> kwargs;
};
using Outputs = std::vector<Tensor>;

// Hooks change what goes in or comes out. They run at once and may issue a redistribute: they put
// its tensor(), which may be in flight, where the old one was, and the module awaits it.
using PreHook = std::function<void(Module&, Inputs&)>;
using PostHook = std::function<void(Module&, Outputs&)>;

struct NamedParameter {
  std::string name;  // path, joined by dots
  Tensor* slot;      // where the module keeps it; may be replaced by a DTensor
};
struct NamedModule {
  std::string path;  // "" is the module that was asked
  Module* module;
};

class RunningModule;
class ModuleChange;  // module_change.h

class Module : private FailureWitness {
 public:
  Module() = default;
  virtual ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // Pre-hooks, run, post-hooks. One tensor in, one out; `call` takes and gives any number.
  //   Resumes: when the result is ordered on the device; yields to siblings where the module or a
  //   hook awaits a collective. Fails:   Error{BadInput} of shapes and layouts; what a collective
  //   fails with. Error{BadInput} also for a module with parameters that require gradients, called
  //   with the tape on inside the forward of another that does not have it registered at any depth:
  //   an optimizer over that one's parameters would leave these out.
  // `site`: the line that errors name of collectives which the library's modules and hooks issue; a
  // module of the user's names its own lines where its run calls the library.
  Task<Tensor> forward(Tensor x, CallSite site = CallSite::current());
  Task<Tensor> forward(Inputs inputs, CallSite site = CallSite::current());
  Task<Tensor> forward(Tensor a, Tensor b, CallSite site = CallSite::current());
  Task<Tensor> forward(Tensor a, Tensor b, Tensor c, CallSite site = CallSite::current());
  Task<Tensor> forward(Tensor a, Tensor b, Tensor c, Tensor d, CallSite site = CallSite::current());
  Task<Outputs> call(Inputs inputs, CallSite site = CallSite::current());
  // From now on forward and call keep no activations, and backward runs this module again: see
  // recompute.h.
  void set_recompute(bool on = true) { recompute_ = on; }
  // `call` as if set_recompute had never been called.
  Task<Outputs> call_once(Inputs inputs, CallSite site = CallSite::current());

  // Parameters of this module and of all below it, in order of registration. A tied parameter (one
  // tensor in several slots) comes once, under its first name; undefined ones (a missing bias) do
  // not come.
  std::vector<NamedParameter> named_parameters();
  std::vector<Tensor> parameters();
  // All slots, tied ones too.
  std::vector<NamedParameter> named_slots();
  // The slot called `name`; Error{BadInput} lists the names there are.
  Tensor& parameter(std::string_view name);
  // This module ("") and all below it, parents first, each once.
  std::vector<NamedModule> named_modules();
  // The module at `path` below this one, or null.
  Module* find(std::string_view path);
  void zero_grad();
  // Dropout and its like work only in training, which is the default. Sets this module and all
  // below it.
  void train(bool on = true);
  bool training() const { return training_; }

  void add_pre_hook(PreHook hook) { pre_hooks_.push_back(std::move(hook)); }
  void add_post_hook(PostHook hook) { post_hooks_.push_back(std::move(hook)); }

  // For styles: this module is `what` from now on. Error{BadInput} when it is already: hooks that
  // are added twice convert twice.
  void claim(std::string what);

  // Where this module sits below its root: "layers.0.attn"; "" for a root.
  const std::string& path();
  std::string type_name() const;  // "Linear"

  // For constructors. The slot and a module given by reference are members of this object and live
  // as long as it does. A shared module belongs to this one too. Error{BadInput} for a name that is
  // taken or contains a dot.
  void register_parameter(std::string name, Tensor& slot);
  void register_module(std::string name, Module& child);
  void register_module(std::string name, std::shared_ptr<Module> child);

 protected:
  // What the module does; override one of the two.
  virtual Task<Tensor> run(Tensor x);
  virtual Task<Outputs> run_all(Inputs inputs);

 private:
  struct Child {
    std::string name;
    Module* module;
    std::shared_ptr<Module> owner;  // null for a member
  };
  class Watch;
  friend class RunningModule;
  friend class ModuleChange;
  bool is_below(const Module& root) const;
  void require_registered_below(Module& root);
  Task<Tensor> begin(Tensor x);
  Task<Tensor> forward_for(CallSite site, Tensor x);
  Task<Tensor> run_within(Tensor x);
  void left_by(const std::exception_ptr& error) noexcept override;
  void check_name(const std::string& name) const;
  void forget_paths();

  std::vector<std::pair<std::string, Tensor*>> parameters_;
  std::vector<Child> children_;
  std::vector<PreHook> pre_hooks_;
  std::vector<PostHook> post_hooks_;
  std::vector<std::string> claims_;
  Module* parent_ = nullptr;
  std::string name_;
  const std::string* path_ = nullptr;  // null: not known yet
  bool training_ = true;
  bool recompute_ = false;
  bool wrapping_ = false;  // the default run is on its way to run_all
};

std::string type_name_of(const std::type_info& type);  // without namespaces

// Modules by number: "0", "1", ... Not called itself.
template <class T>
class ModuleList : public Module {
 public:
  void append(std::shared_ptr<T> module) {
    register_module(std::to_string(modules_.size()), module);
    modules_.push_back(std::move(module));
  }
  std::size_t size() const { return modules_.size(); }
  T& operator[](std::size_t i) { return *modules_[i]; }

 private:
  std::vector<std::shared_ptr<T>> modules_;
};

}  // namespace coshard
