#pragma once
// Captured steps: a step of a program (forward, backward, clip, AdamW, collectives by NCCL) that is
// recorded into a graph of the device once, and from then on is one launch. Rank's thread.
//
//   using cs::Task, cs::Tensor;
//   cs::CapturedStep train_step = cs::capture([&](std::vector<Tensor> in) -> Task<Tensor> {
//     Tensor logits = co_await model.forward(in[0]);
//     Tensor loss = co_await cs::loss_parallel_cross_entropy(logits, in[1]);
//     co_await cs::backward(loss);
//     co_await optimizer.step();
//     optimizer.zero_grad();
//     co_return loss;
//   });
//   for (auto [tokens, targets] : batches) Tensor loss = co_await train_step(tokens, targets);
//
// Each call is one step, with the numbers of an eager one, bit for bit. The first calls run the
// body as it stands; the next one records it; the others do not run it: they copy the inputs to
// where the recorded step reads them, bring the host's state forward (the optimizer's steps,
// versions, the position of the random stream, gradients left behind) and launch. On the cpu every
// call runs the body, so programs are the same everywhere.
//
// What a body may do. It reads tensors that it is given, or that stay where they are: parameters,
// an optimizer's state, whatever is written in place. A number of the host's (a scale, a flag) is
// recorded as it is; only the optimizer's lr and what else is named above is looked up anew.
// Error{Unsupported} names what cannot be recorded, and the operator: the host's reading a tensor
// (item, to_vector) or giving one (from_values), making a communicator, collectives of the local
// communicator between devices, a parameter's first optimizer step, adding to a gradient from
// before, another seed, a captured step within the body. Then nothing of the recorded step has run
// on the device, but an optimizer that the body has called has counted the step: a program that
// goes on without the graph makes its optimizer anew. Work that nobody has awaited by the end of
// the body is part of the step. All ranks make the same calls. A handle that the body rebinds
// (`ema = ema + 1`) is rebound while it is recorded, not by replays: write it in place. Observers
// hear of the recording, not of replays.
//
// Memory. What the recorded step allocates is kept for it alone, as long as it or a tensor in that
// memory lives; a gradient that it leaves behind is overwritten by the next call. What was there
// before and is let go of while it is recorded is kept, too.
#include <functional>
#include <memory>
#include <vector>

#include <coshard/dtensor/tensor.h>
#include <coshard/runtime/coro/task.h>

namespace coshard {

// The inputs of one call -> what the step gives; may be undefined.
using StepBody = std::function<Task<Tensor>(std::vector<Tensor> inputs)>;

struct CaptureOptions {
  // How many calls run the body as it stands before one records it. In them optimizers make their
  // state, which cannot be recorded, and NCCL connects, which may wait for the peers.
  int eager_steps = 1;
};

// A handle; copies are of one step. To go before the world does. Made without capture() it is
// undefined: calling it is Error{BadInput}.
class CapturedStep {
 public:
  // One step. Gives what the body gives, in memory of its own and off the tape. Inputs must have
  // the shapes, dtypes and layouts of the call that was recorded, else Error{BadInput}.
  //   Resumes, Fails: as the body does; a call that replays awaits its inputs.
  Task<Tensor> operator()(std::vector<Tensor> inputs, CallSite site = CallSite::current()) const;
  Task<Tensor> operator()(CallSite site = CallSite::current()) const;
  Task<Tensor> operator()(Tensor input, CallSite site = CallSite::current()) const;
  Task<Tensor> operator()(Tensor first, Tensor second, CallSite site = CallSite::current()) const;
  // Whether the next call replays; false of an undefined one.
  bool recorded() const;

 private:
  struct State;
  friend CapturedStep capture(StepBody body, CaptureOptions options);
  static Task<Tensor> run(std::shared_ptr<State> state, std::vector<Tensor> inputs, CallSite site);
  static Task<Tensor> record(std::shared_ptr<State> state, std::vector<Tensor> inputs);
  std::shared_ptr<State> state_;
};

// Runs nothing yet. Error{BadInput}: fewer than one eager step.
CapturedStep capture(StepBody body, CaptureOptions options = {});
// The same of a body that takes no inputs.
CapturedStep capture(std::function<Task<Tensor>()> body, CaptureOptions options = {});

}  // namespace coshard
