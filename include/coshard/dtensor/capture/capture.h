#pragma once
// Captured steps: a step of a program (forward, backward, clipping, AdamW, NCCL collectives) that
// is recorded once into a CUDA graph and replayed by a single launch afterwards. Rank's thread.
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
// Each call is one step and computes what an eager step does, bit for bit. The first calls run the
// body eagerly; the next one records it; later ones do not run it: they copy the inputs to where
// the recorded step reads them, advance the host's state (the optimizer's step counts, tensor
// versions, the random stream's position, gradients left behind) and launch. On the CPU every call
// runs the body, so that programs are the same everywhere.
//
// What a body may do. It may read its inputs and tensors that stay in place: parameters, optimizer
// states, whatever is written in place. A host value (a scale, a flag) is recorded as a constant;
// only the optimizer's lr and the state named above are read anew. Error{Unsupported} names what
// cannot be recorded and the operator: copying between host and tensors (item, to_vector,
// from_values), creating a communicator, collectives of the local communicator between devices, a
// parameter's first optimizer step, adding to a gradient from before the step, another random seed,
// a captured step inside the body. In that case no part of the recorded step has run on the device,
// but an optimizer that the body called has counted the step: a program that continues without the
// graph must create its optimizer anew. Work not awaited by the end of the body is part of the
// step. All ranks make the same calls. A handle that the body reassigns (`ema = ema + 1`) is
// reassigned during recording, not during replays: write in place instead. Observers are notified
// of the recording, not of replays.
//
// Memory. What the recorded step allocates is reserved for it as long as the step or a tensor in
// that memory lives; a gradient it leaves behind is overwritten by the next call. Memory allocated
// before the recording and released during it is kept as well.
#include <functional>
#include <memory>
#include <vector>

#include <coshard/dtensor/tensor/tensor.h>
#include <coshard/runtime/coro/task.h>

#pragma GCC visibility push(default)
namespace coshard {

// Maps the inputs of one call to the step's result, which may be undefined.
using StepBody = std::function<Task<Tensor>(std::vector<Tensor> inputs)>;

struct CaptureOptions {
  // How many calls run the body eagerly before one records it. During these, optimizers allocate
  // their states, which cannot be recorded, and NCCL connects, which may wait for peers.
  int eager_steps = 1;
};

// A handle; copies share one step. Must be destroyed before its world. Default-constructed it is
// undefined, and calling it is Error{BadInput}.
class CapturedStep {
 public:
  // Runs one step. Returns the body's result, in its own memory and off the tape. Error{BadInput}
  // if inputs differ in shape, dtype or layout from those of the recorded call.
  //   Resumes: as the body does; a replay awaits its inputs.
  //   Fails:   as the body does.
  Task<Tensor> operator()(std::vector<Tensor> inputs, CallSite site = CallSite::current()) const;
  Task<Tensor> operator()(CallSite site = CallSite::current()) const;
  Task<Tensor> operator()(Tensor input, CallSite site = CallSite::current()) const;
  Task<Tensor> operator()(Tensor first, Tensor second, CallSite site = CallSite::current()) const;
  // Whether the next call replays; false if undefined.
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
// The same for a body without inputs.
CapturedStep capture(std::function<Task<Tensor>()> body, CaptureOptions options = {});

}  // namespace coshard
#pragma GCC visibility pop
