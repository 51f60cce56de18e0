#pragma once
// What the lists of silent mistakes share: one step of training, and how it ends on a rank.
#include <string>
#include <utility>

#include "tests/styles/support.h"
#include "tests/support/ends.h"
#include "tests/support/errors.h"

namespace coshard::testing {

// How `program` ends on this rank; its error ends nothing else.
inline Task<End> end_of(Task<void> program) {
  End end;
  Task<void> kept = keep_end(std::move(program), end);
  co_await std::move(kept);
  co_return end;
}

// A typed error that names the culprit.
inline void expect_told(const End& end, const std::string& culprit,
                        ErrorKind kind = ErrorKind::BadInput) {
  EXPECT_TRUE(end.is(kind)) << end;
  EXPECT_TRUE(end.names(culprit)) << "lacks '" << culprit << "': " << end;
}

// What a training loop logs: a collective along each dimension of the mesh.
inline void log_along(const DeviceMesh& mesh) {
  for (const std::string& name : mesh.names())
    static_cast<void>(ones(mesh[name], Shard(0), {mesh.size(name)}).full_tensor());
}

// `program`, which takes a step and logs, fails on every rank at the latest then, and is told why. A
// rank in another process may hear first that its peer has left.
inline void expect_all_told(int ranks, const Program& program, const std::string& culprit) {
  std::string texts;
  for (const End& end : ends_of(quick_options(ranks), program)) {
    EXPECT_TRUE(end.is(ErrorKind::CommFailed)) << end;
    texts += end.text + "\n";
  }
  EXPECT_CONTAINS(texts, culprit);
}

// The gradients of the mean square of what `model` gives for `x`.
inline Task<void> learn(Module& model, Tensor x) {
  Task<Tensor> forward = model.forward(std::move(x));
  const Tensor y = co_await std::move(forward);
  const Tensor loss = mean(mul(y, y));
  Task<void> walk = backward(loss);
  co_await std::move(walk);
}

// One step, with or without clipping.
inline Task<void> one_step(Module& model, Tensor x, bool clip = false) {
  SGD optimizer(model.parameters(), {.lr = 0.1});
  Task<void> learnt = learn(model, std::move(x));
  co_await std::move(learnt);
  if (clip) {
    Task<Tensor> clipped = clip_grad_norm(model.parameters(), 0.01);
    co_await std::move(clipped);
  }
  Task<void> stepped = optimizer.step();
  co_await std::move(stepped);
}

// The norm that clip_grad_norm returns.
inline Task<double> clipped_norm(std::vector<Tensor> parameters, double limit) {
  Task<Tensor> clipped = clip_grad_norm(std::move(parameters), limit);
  const Tensor norm = co_await std::move(clipped);
  co_return norm.item();
}

// Every parameter and gradient of `got` as in `want`, which one device has trained.
inline void expect_same(Module& got, Module& want) {
  const std::vector<NamedParameter> other = want.named_parameters();
  const std::vector<NamedParameter> mine = got.named_parameters();
  ASSERT_EQ(mine.size(), other.size());
  for (std::size_t i = 0; i < mine.size(); ++i) {
    SCOPED_TRACE(mine[i].name);
    expect_close(mine[i].slot->detach(), other[i].slot->detach());
    if (other[i].slot->grad().defined()) expect_close(mine[i].slot->grad(), other[i].slot->grad());
  }
}

// A plain leaf, and the DTensor leaf with its values.
inline Tensor leaf(const Tensor& values) { return values.clone().detach().requires_grad_(); }
inline DTensor leaf(const Tensor& values, const DeviceMesh& mesh, const Layout& layout) {
  return distribute_tensor(values, mesh, layout).detach().requires_grad_();
}

}  // namespace coshard::testing
