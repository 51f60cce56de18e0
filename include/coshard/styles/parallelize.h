#pragma once
// parallelize_module: applies a plan, which maps module names to styles, to a model. A collective;
// rank's thread.
#include <deque>
#include <string>
#include <utility>

#include <coshard/styles/colwise.h>
#include <coshard/styles/no_parallel.h>
#include <coshard/styles/prepare_input.h>
#include <coshard/styles/prepare_input_output.h>
#include <coshard/styles/prepare_output.h>
#include <coshard/styles/rowwise.h>
#include <coshard/styles/sequence.h>
#include <coshard/styles/style.h>

#pragma GCC visibility push(default)
namespace coshard {

// Styles by module path, in order of insertion. Each part of a path is a shell pattern:
// "layers.*.net[12]". "" is the module itself; a plan made of a single style means that too.
class ParallelPlan {
 public:
  ParallelPlan() = default;
  template <class S>
  requires(!std::same_as<S, ParallelPlan> && (std::same_as<S, Style> || ParallelStyle<S>))
      ParallelPlan(S style) {  // NOLINT: implicit
    (*this)[""] = std::move(style);
  }

  Style& operator[](std::string key);  // valid as long as the plan
  bool empty() const { return entries_.empty(); }
  std::size_t size() const { return entries_.size(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }
  // One line per key.
  friend std::ostream& operator<<(std::ostream& out, const ParallelPlan& plan) {
    for (const auto& [key, style] : plan) out << '\'' << key << "': " << style << '\n';
    return out;
  }

 private:
  std::deque<std::pair<std::string, Style>> entries_;
};

// Applies the plan's styles in order, each to every module it matches. An empty plan does nothing.
// A parameter keeps its requires_grad; tied parameters stay tied, with the layout of the first
// style. It applies in full or not at all: if it fails, also in a user's style, parameters, hooks
// and the random state are as before. Create the optimizer afterwards: stepping one that holds a
// replaced handle is an error, and so is running backward into such a handle.
//   Resumes: once every rank holds its shards.
//   Moves:   per parameter, one scatter (shards) or broadcast (replicas) from
//            options.src_data_rank; nothing for nullopt.
//   Fails:   Error{BadInput}: an undefined mesh, or one of more than one dimension; an empty style;
//            a key that matches no module (close names are listed) or names a parameter; a style
//            that does not fit its module or has already been applied to it; a replaced parameter
//            that is tied to one outside of the module.
Task<void> parallelize_module(Module& module, DeviceMesh mesh, ParallelPlan plan,
                              ParallelizeOptions options = {}, CallSite site = CallSite::current());
// On the mesh of the innermost DefaultMesh.
Task<void> parallelize_module(Module& module, ParallelPlan plan, ParallelizeOptions options = {},
                              CallSite site = CallSite::current());

}  // namespace coshard
#pragma GCC visibility pop
