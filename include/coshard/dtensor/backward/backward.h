#pragma once
// Gradients: accumulated into the leaves, or returned. Rank's thread.
#include <vector>

#include <coshard/dtensor/tape/tape.h>
#include <coshard/dtensor/tensor/tensors.h>
#include <coshard/runtime/coro/task.h>

#pragma GCC visibility push(default)
namespace coshard {

// retain_graph: keep what operators saved, so that backward can run through the same part of the
// tape again. create_graph: record the backward operators too, so that gradients can be
// differentiated; implies retain_graph. A leaf and such a gradient keep each other alive until
// set_grad({}).
struct BackwardOptions {
  bool retain_graph = false, create_graph = false;
};

// Adds the gradient of `loss` with respect to every leaf it depends on to that leaf's grad().
// `gradient`: the gradient of `loss`, with its shape, cast to its dtype and, for a DTensor, in any
// layout. Default: 1, for a tensor with one element. A leaf's gradient has the leaf's layout, or
// stays Partial if the optimizer is to reduce it; its memory is not shared. Collectives of input
// gradients are issued first, and weight gradients are computed while they run. Saved tensors are
// freed as backward proceeds.
//   Resumes: suspends before each record whose gradients are in flight, so that sibling tasks
//            overlap with the collectives. Gradients of one tensor are added in the order in which
//            backward produced them.
//   Moves:   the redistributes on the tape, mirrored, in reverse order.
//   Result:  gradients may still be in flight; co_await arrival_of({leaf.grad()}) waits for one.
//   Fails:   Error{BadInput}: `loss` depends on no leaf; more than one element and no gradient; a
//            saved tensor was changed in place; the tape was already used without retain_graph;
//            create_graph through an operator whose backward is not differentiable.
//   Cancel:  leaves keep the gradients that have reached them.
Task<void> backward(Tensor loss, Tensor gradient = {}, BackwardOptions options = {},
                    CallSite site = CallSite::current());
Task<void> backward(Tensor loss, BackwardOptions options, CallSite site = CallSite::current());
// The same outside a coroutine: waits in place. Error{BadInput}: an operator whose backward awaits
// (recomputation).
void run_backward(const Tensor& loss, const Tensor& gradient = {}, BackwardOptions options = {},
                  CallSite site = CallSite::current());
void run_backward(const Tensor& loss, BackwardOptions options, CallSite site = CallSite::current());

struct GradOptions {
  bool retain_graph = false, create_graph = false;
  bool allow_unused = false;  // inputs that the outputs do not depend on get an undefined gradient
};

// Gradients of the sum of `outputs` with respect to `inputs`, leaves or not (torch.autograd.grad).
// Changes no grad(), and backward visits only the records between the two. `gradients`: those of
// the outputs, as for backward; empty: 1 for each. A gradient has the layout it arrives in; a
// leaf's is converted as by backward. Hooks of the inputs run. Error{BadInput}: as backward; an
// input that the outputs do not depend on.
Task<std::vector<Tensor>> grad(Tensors outputs, Tensors inputs, Tensors gradients = {},
                               GradOptions options = {}, CallSite site = CallSite::current());
std::vector<Tensor> run_grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                             const std::vector<Tensor>& gradients = {}, GradOptions options = {},
                             CallSite site = CallSite::current());

// Runs backward from `roots` but not into records up to `since`: gradients that reach those go to
// `outer`, the sink of the record that is running. For a record whose backward itself records
// operators first.
Task<void> walk_within(std::vector<Tensor> roots, std::vector<Tensor> gradients,
                       std::uint64_t since, GradSink& outer);

}  // namespace coshard
#pragma GCC visibility pop
