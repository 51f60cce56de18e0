#pragma once
// A forward that interleaves the parts of a batch, so that one computes while a collective of
// another is in flight (Domino, arXiv 2409.15241; ISO, arXiv 2409.11155). The module, its styles
// and its hooks stay as they are. Rank's thread.
#include <coshard/styles/module.h>

#pragma GCC visibility push(default)
namespace coshard {

//   cs::Tensor logits = co_await cs::woven(model, 2).forward(tokens);
//   cs::Tensor loss = co_await cs::loss_parallel_cross_entropy(logits, targets);
//   co_await cs::backward(loss);
//
// Runs Module::call once per part, as children of one when_all; the backward of what that records
// is interleaved too. Use it only for models whose batch rows are independent, in training or not.
// It pays off where awaited collectives take a good part of the time and a part computes between
// two of them for about as long as one takes: tensor parallelism with all_reduce. Each collective
// becomes one smaller collective per part.
//   Inputs:  every tensor is split along dimension 0 into parts that differ by at most one row; one
//            without dimensions, or of size 1 where the batch has more, is passed whole to each
//            part. For a DTensor sharded along dimension 0, each rank splits its own rows: nothing
//            moves.
//   Outputs: concatenated along dimension 0, in the order of the rows, by a copy. The same values
//            as without weaving, bitwise where rows do not mix; but dropout draws from separate
//            streams for each part (random.h), so it drops other elements.
//   Gradients: of the parameters, the sums over the parts, added locally: equal to the unwoven
//            result up to rounding.
//   Resumes: when all parts are ordered on the device.
//   Fails:   Error{BadInput}: no tensor with rows; fewer rows than parts; tensors with different
//            numbers of rows; rows that the shards do not divide evenly; an output that does not
//            have a part's rows (a loss, or rows that the module shards or gathers). Any error of
//            Module::call: one part's error cancels the others.
class Woven {
 public:
  Task<Tensor> forward(Tensor x, CallSite site = CallSite::current()) const;
  Task<Tensor> forward(Inputs inputs, CallSite site = CallSite::current()) const;
  Task<Outputs> call(Inputs inputs, CallSite site = CallSite::current()) const;

 private:
  friend Woven woven(Module& module, int parts);
  Woven(Module& module, int parts) : module_(&module), parts_(parts) {}

  Module* module_;
  int parts_;
};

// `module` must outlive the tasks that this runs. Error{BadInput}: fewer than 1 part; 1 is as
// Module::call.
Woven woven(Module& module, int parts = 2);

}  // namespace coshard
#pragma GCC visibility pop
