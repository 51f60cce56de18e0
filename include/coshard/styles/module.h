#pragma once
// Module: a part of a model with named parameters, named submodules, and hooks around its forward.
// Owned by the user, as a member of its parent or by shared_ptr; neither copyable nor movable. Used
// on the rank's thread.
//
//   struct Mlp : cs::Module {
//     explicit Mlp(cs::World& world) : up(8, 32, world), down(32, 8, world) {
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
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

#include <coshard/dtensor/ops/overlap.h>
#include <coshard/dtensor/tensor/tensor.h>
#include <coshard/runtime/coro/task.h>
#include <coshard/runtime/type_name.h>

#pragma GCC visibility push(default)
namespace coshard {

class Module;

// The arguments of a forward: positional (an undefined tensor is None) and keyword.
struct Inputs {
  Inputs() = default;
  template <class... Rest>
  explicit Inputs(Tensor first, Rest... rest) : args{std::move(first), std::move(rest)...} {}
  Inputs& keyword(std::string name, Tensor value) {
    kwargs.emplace_back(std::move(name), std::move(value));
    return *this;
  }
  // The argument called `name`, else number `position`; undefined if neither was passed.
  Tensor get(std::size_t position, std::string_view name) const;

  std::vector<Tensor> args;
  std::vector<std::pair<std::string, Tensor>> kwargs;
};
using Outputs = std::vector<Tensor>;

// Hooks modify inputs or outputs. They run synchronously and may issue a redistribute: put its
// tensor(), which may be in flight, in place of the old one; the module awaits it.
using PreHook = std::function<void(Module&, Inputs&)>;
using PostHook = std::function<void(Module&, Outputs&)>;

struct NamedParameter {
  std::string name;  // path, joined by dots
  Tensor* slot;      // where the module keeps it; may be replaced by a DTensor
};
struct NamedBuffer {
  std::string name;
  Tensor* slot;
  bool persistent;
};
struct NamedModule {
  std::string path;  // "" is the module itself
  Module* module;
};

// The two ways in which ColwiseParallel and RowwiseParallel shard a module over a mesh dimension:
// its output features, or what it sums over.
enum class ShardBy : std::uint8_t { Columns, Rows };
// Features of which some belong together, such as the columns of a head.
struct FeatureGroups {
  std::int64_t size = 1;  // a group; with at least as many groups as ranks, each is on one rank
  // With fewer groups than ranks, this many features stay together instead; 0: all ranks hold all.
  std::int64_t part = 1;
};
struct ShardAxes {
  struct Axis {
    std::string parameter;
    Placement placement;
  };
  std::vector<Axis> parameters;
  Placement input = Replicate();                     // what the module needs of its input
  std::optional<std::int64_t> width = std::nullopt;  // size of the input's last dimension, if fixed
  FeatureGroups groups = {};                         // of what is cut, if it is local
};

// What a style asks of a module that can overlap with collectives (overlap.h).
struct Overlapping {
  Overlap overlap = Overlap::Off;
  std::optional<Placement> target = std::nullopt;  // of an output that is a sum over ranks
};

class RunningModule;
class ModuleState;   // styles/module_state.h
class ModuleChange;  // module_change.h

class Module : private ErrorObserver {
 public:
  Module() = default;
  virtual ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // Pre-hooks, run, post-hooks. One tensor in, one out; `call` takes and returns any number.
  //   Resumes: when the result is ordered on the device; siblings run while the module or a hook
  //            awaits a collective.
  //   Fails:   Error{BadInput} for shapes and layouts that do not fit; any error of a collective.
  //            Error{BadInput} too when a module with trainable parameters is called, with the tape
  //            on, inside the forward of a module that has not registered it at any depth: an
  //            optimizer over the caller's parameters() would miss them.
  // `site`: the line that errors name for collectives issued by the library's modules and hooks. A
  // user's module names the lines of its own run that call the library.
  Task<Tensor> forward(Tensor x, CallSite site = CallSite::current());
  Task<Tensor> forward(Inputs inputs, CallSite site = CallSite::current());
  Task<Tensor> forward(Tensor a, Tensor b, CallSite site = CallSite::current());
  Task<Tensor> forward(Tensor a, Tensor b, Tensor c, CallSite site = CallSite::current());
  Task<Tensor> forward(Tensor a, Tensor b, Tensor c, Tensor d, CallSite site = CallSite::current());
  Task<Outputs> call(Inputs inputs, CallSite site = CallSite::current());
  // Further files of a folder that save writes for the module, such as config.json: bytes by name.
  virtual std::map<std::string, std::string> folder_files() const { return {}; }
  // Ends of names of tensors that files of such a module may have and that it has no use for, such
  // as tables that it computes: load passes them over, and reports them (LoadReport::unused).
  virtual std::vector<std::string> unused_names() const { return {}; }
  // Names of parameters that a file may lack: load leaves those as they are, and reports them
  // (LoadReport::missing).
  virtual std::vector<std::string> optional_names() const { return {}; }
  // What such a module's names begin with, and files may leave out; "": nothing.
  virtual std::string optional_prefix() const { return ""; }
  // From now on forward and call save no activations, and backward runs this module again: see
  // recompute.h.
  void set_recompute(bool on = true) { recompute_ = on; }
  // `call` as if set_recompute had never been used.
  Task<Outputs> call_once(Inputs inputs, CallSite site = CallSite::current());

  // Parameters of this module and its submodules, in order of registration. A tied parameter (one
  // tensor in several slots) is listed once, under its first name; undefined ones (a missing bias)
  // are not listed.
  std::vector<NamedParameter> named_parameters();
  std::vector<Tensor> parameters(CallSite site = CallSite::current());
  // All slots, including tied ones.
  std::vector<NamedParameter> named_slots();
  // Buffers of this module and its submodules, in order of registration; undefined ones are not
  // listed.
  std::vector<NamedBuffer> named_buffers();
  // The slot called `name`; Error{BadInput} lists the known names.
  Tensor& parameter(std::string_view name);
  // This module ("") and its submodules, parents first, each once.
  std::vector<NamedModule> named_modules();
  // The submodule at `path`, or null.
  Module* find(std::string_view path);
  void zero_grad();
  // Sets training mode, the default, on this module and its submodules; dropout is active only
  // then.
  void train(bool on = true);
  bool training() const { return training_; }

  // How its parameters are sharded that way, with an output that is then Shard(-1) (columns) or
  // Partial (rows); nullopt: they cannot be.
  virtual std::optional<ShardAxes> shard_axes(ShardBy) const { return std::nullopt; }

  // The linear layers that multiply the first input of `run` while an all_gather is still filling it
  // shard by shard, and await it. None: call() awaits it first.
  virtual InputProducts input_products() const { return {}; }
  void set_overlapping(Overlapping how) { overlapping_ = how; }
  const Overlapping& overlapping() const { return overlapping_; }

  void add_pre_hook(PreHook hook) { pre_hooks_.push_back(std::move(hook)); }
  void add_post_hook(PostHook hook) { post_hooks_.push_back(std::move(hook)); }

  // For styles: marks this module as `what`. Error{BadInput} if it already is: hooks that are added
  // twice would convert twice.
  void claim(std::string what);

  // For the library: what acts around this module's calls; null: nothing.
  const std::shared_ptr<ModuleState>& state() const { return state_; }
  void set_state(std::shared_ptr<ModuleState> state) { state_ = std::move(state); }

  // The path of this module from its root: "layers.0.attn"; "" for a root.
  const std::string& path();
  std::string type_name() const;  // "Linear"
  // How often it has been called in training, with the tape on; counts to 3.
  int forwards() const { return forwards_; }

  // For constructors. A slot, or a module passed by reference, must be a member of this object; a
  // shared module is kept alive. Error{BadInput} for a name that is taken or contains a dot.
  void register_parameter(std::string name, Tensor& slot);
  // A tensor that is no parameter: optimizers and styles leave it alone. `persistent`: it belongs
  // to the module's state (state_dict.h), as running statistics do, and tables that a config gives
  // do not.
  void register_buffer(std::string name, Tensor& slot, bool persistent = true);
  void register_module(std::string name, Module& child);
  void register_module(std::string name, std::shared_ptr<Module> child);

 protected:
  // The forward; override one of the two.
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
  bool left_arriving(const Tensor& x) const;
  bool has_own_state() const;
  bool is_below(const Module& root) const;
  void require_registered_below(Module& root);
  Task<Tensor> begin(Tensor x);
  Task<Tensor> forward_for(CallSite site, Tensor x);
  Task<Tensor> run_within(Tensor x);
  void on_exception(const std::exception_ptr& error) noexcept override;
  void check_name(const std::string& name) const;
  void forget_paths();
  void name_values_below();

  std::vector<std::pair<std::string, Tensor*>> parameters_;
  std::vector<NamedBuffer> buffers_;
  std::vector<Child> children_;
  std::vector<PreHook> pre_hooks_;
  std::vector<PostHook> post_hooks_;
  std::vector<std::string> claims_;
  Overlapping overlapping_;
  std::shared_ptr<ModuleState> state_;
  Module* parent_ = nullptr;
  std::string name_;
  const std::string* path_ = nullptr;  // null: not known yet
  int forwards_ = 0;
  bool training_ = true;
  bool recompute_ = false;
  bool wrapping_ = false;  // the default run is calling run_all
};

// Submodules named "0", "1", ... It has no forward of its own.
template <class T>
class ModuleList : public Module {
 public:
  void append(std::shared_ptr<T> module) {
    register_module(std::to_string(modules_.size()), module);
    modules_.push_back(std::move(module));
  }
  std::size_t size() const { return modules_.size(); }
  T& operator[](std::size_t i) { return *modules_[i]; }
  // In order, each a const std::shared_ptr<T>&.
  auto begin() const { return modules_.begin(); }
  auto end() const { return modules_.end(); }

 private:
  std::vector<std::shared_ptr<T>> modules_;
};

}  // namespace coshard
#pragma GCC visibility pop
