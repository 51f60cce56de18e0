#pragma once
// Gradients: into the leaves, or as a result. Rank's thread.
#include <vector>

#include <coshard/dtensor/tensors.h>
#include <coshard/runtime/coro/task.h>

namespace coshard {

// retain_graph: what operators saved is kept, so that the same part of the tape can be walked
// again. create_graph: gradients are recorded too, so that they can be differentiated in turn; it
// implies retain_graph. A leaf and such a gradient keep each other alive until set_grad({}).
struct BackwardOptions {
  bool retain_graph = false, create_graph = false;
};

// Gradients of `loss` with respect to every leaf behind it, added to the leaves' grad().
// `gradient`: the gradient of `loss` (same shape, cast to its dtype and, on a DTensor, any layout);
// default 1 for a tensor with one element. A leaf's gradient has the leaf's layout, or stays
// Partial where the sum is left to the optimizer; its memory is nobody else's. Input-gradient
// collectives are issued first, weight gradients computed under them. What operators saved is freed
// on the way. Error{BadInput}: no leaf behind it; more than one element and no gradient; a saved
// tensor that was changed in place since; a part of the tape that was walked before without
// retain_graph; create_graph through an operator whose backward has no gradient of its own.
// Collectives: those of the redistributes on the tape, mirrored, in reverse order.
//   Resumes: suspends before each record whose gradients are in flight, so that siblings run under
//   the collectives; gradients that meet there are added in the order in which they arrived.
//   Gives: gradients that may still be in flight; co_await arrival_of({leaf.grad()}) awaits one.
//   Cancel: the leaves keep what has reached them by then.
Task<void> backward(Tensor loss, Tensor gradient = {}, BackwardOptions options = {},
                    CallSite site = CallSite::current());
Task<void> backward(Tensor loss, BackwardOptions options, CallSite site = CallSite::current());
// The same on the spot, outside a coroutine: waits in place. Error{BadInput} through what has to
// await (recomputation).
void run_backward(const Tensor& loss, const Tensor& gradient = {}, BackwardOptions options = {},
                  CallSite site = CallSite::current());
void run_backward(const Tensor& loss, BackwardOptions options, CallSite site = CallSite::current());

struct GradOptions {
  bool retain_graph = false, create_graph = false;
  bool allow_unused = false;  // an input that is not behind the outputs has an undefined gradient
};

// Gradients of the sum of `outputs` with respect to `inputs`, leaves or not (torch.autograd.grad):
// no grad() is touched, and only what lies between is walked. `gradients`: of the outputs, as for
// backward; empty: 1 for each. A gradient has the layout in which it arrives; a leaf's is fitted as
// by backward. Hooks of the inputs run. Error{BadInput}: as backward; an input that is not behind
// the outputs.
Task<std::vector<Tensor>> grad(Tensors outputs, Tensors inputs, Tensors gradients = {},
                               GradOptions options = {}, CallSite site = CallSite::current());
std::vector<Tensor> run_grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                             const std::vector<Tensor>& gradients = {}, GradOptions options = {},
                             CallSite site = CallSite::current());

}  // namespace coshard
