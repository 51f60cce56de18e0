#pragma once
// parallelize_module: applies a plan, which pairs names of modules with styles, to a model.
// Collective; rank's thread.
#include <string>
#include <utility>
#include <vector>

#include <coshard/styles/colwise.h>
#include <coshard/styles/no_parallel.h>
#include <coshard/styles/prepare_input.h>
#include <coshard/styles/prepare_input_output.h>
#include <coshard/styles/prepare_output.h>
#include <coshard/styles/rowwise.h>
#include <coshard/styles/sequence.h>
#include <coshard/styles/style.h>

namespace coshard {

// Styles by module path, in order of insertion. Each part of a path is a shell pattern:
// "layers.*.net[12]". "" is the module itself, which is also what a plan made of a single style
// means.
class ParallelPlan {
 public:
  ParallelPlan() = default;
  template <class S>
  requires(!std::same_as<S, ParallelPlan> && (std::same_as<S, Style> || ParallelStyle<S>))
      ParallelPlan(S style) {  // NOLINT: implicit
    (*this)[""] = std::move(style);
  }

  Style& operator[](std::string key);
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
  std::vector<std::pair<std::string, Style>> entries_;
};

// Applies the plan's styles in order, each to every module it matches. An empty plan does nothing.
// A parameter keeps its requires_grad; tied parameters stay tied, with the layout that the first
// style gives. All or nothing: when it fails, also in a style of the user's, parameters, hooks and
// the random position are as before. Make the optimizer afterwards: the step of one over a handle
// that was replaced is an error, and so is a backward into it.
//   Resumes: when every rank has its parts.
//   Moves:   per parameter, a scatter (shards) or a broadcast (replicas) from
//   options.src_data_rank; nothing for nullopt.
//   Fails:   Error{BadInput}: a mesh that is undefined or has more than one dimension, an empty
//            style, a key that matches no module (near names are listed) or names a parameter, a
//            style that does not fit its module or was applied to it before.
Task<void> parallelize_module(Module& module, DeviceMesh mesh, ParallelPlan plan,
                              ParallelizeOptions options = {}, CallSite site = CallSite::current());
// On the mesh of the innermost DefaultMesh at the time of the call.
Task<void> parallelize_module(Module& module, ParallelPlan plan, ParallelizeOptions options = {},
                              CallSite site = CallSite::current());

}  // namespace coshard
