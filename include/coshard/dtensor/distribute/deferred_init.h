#pragma once
// Modules without memory: their parameters and buffers have shapes, dtypes and layouts, and a
// recipe of what the constructors wrote into them.
//
//   std::shared_ptr<Model> model;
//   {
//     const cs::DeferredInit deferred;
//     model = std::make_shared<Model>(config, world);
//   }
//   co_await cs::parallelize_module(*model, mesh["tp"], plan);   // cuts specs alone
//   cs::fully_shard(*model, mesh["dp"]);
//   co_await cs::load(*model, "model");                          // takes memory for each rank's part
//   cs::materialize(*model);                                     // draws what was not loaded
//
// While a scope is open, the factories (factories.h) that a program or a module's constructor calls
// make tensors without memory. The functions of init.h and random.h and in-place operators add to
// the recipe of such a tensor; operators, of plain tensors and off the tape, give a tensor without
// memory that has a recipe, too. Random streams advance as they would without the scope. What comes
// from the host (from_values, arange, linspace) or from Tensor::empty has memory as always; copies
// of it in a recipe last until the tensor has values. distribute_tensor, from_local, styles and
// fully_shard cut a tensor without memory without communication.
//
// A tensor without memory cannot be read, and outside of a scope not be written to: Error{BadInput}
// names the parameter and the remedy. What initializes parameters later (model.apply) does so in a
// scope of its own, before or after they are cut. A scope belongs to its branch of the program
// (coshard/runtime/coro/branch.h); in the forward of a module it counts as closed.
#include <coshard/dtensor/tensor/tensor.h>

#pragma GCC visibility push(default)
namespace coshard {

class [[nodiscard]] DeferredInit {
 public:
  DeferredInit();
  ~DeferredInit();
  DeferredInit(const DeferredInit&) = delete;
  DeferredInit& operator=(const DeferredInit&) = delete;

 private:
  bool outer_;
};

// Whether x was made under a DeferredInit and has no memory yet.
bool is_deferred(const Tensor& x);

// Takes memory for what this rank has of x, and of what shares memory with it, and writes what its
// recipe says: the bits that it would have without DeferredInit. Nothing for other tensors. The
// random state stays. No communication; where ranks drew or wrote other initial values for what
// they must hold alike, the next collective of the mesh fails by Error{CommFailed}. Values are made
// by parts if all writes are draws, constants and pointwise; else whole, one tensor at a time, and
// then cut.
void materialize(const Tensor& x, CallSite site = CallSite::current());

}  // namespace coshard
#pragma GCC visibility pop
