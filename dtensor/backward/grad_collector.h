#pragma once
// Collects the gradients of some leaves while backward runs, and sends them as soon as they are
// complete. Leaves refer to it (GradMeta::collector). Rank's thread.
#include <span>

#include <coshard/dtensor/tape/tape.h>

namespace coshard {

class GradCollector {
 public:
  virtual ~GradCollector() = default;
  // Called when a backward begins, before it looks for leaves: copies to them what users may have
  // changed since the forward on the tensors that they stand for (requires_grad).
  virtual void refresh() {}
  // Called when a backward begins that reaches these leaves, given by number
  // (GradMeta::collected_as) in the order in which their gradients will be complete. Returns
  // whether it must call complete() and end(). Error{BadInput}: another such backward has not
  // ended.
  virtual bool begin(std::span<const int> reached) = 0;
  // Memory into which an operator may write the first gradient of `leaf`; undefined: none.
  virtual Tensor place(const GradMeta& leaf) = 0;
  // Adds `gradient` to leaf.gradient; neither is in flight. Error{BadInput}: it would count twice.
  virtual void add(GradMeta& leaf, Tensor gradient) = 0;
  // Nothing more will be added to this leaf's gradient in this backward.
  virtual void complete(int leaf) = 0;
  // The backward has ended, or failed.
  virtual void end() = 0;
  // After end(): what has to arrive before settle(), which then ends the backward; null: nothing.
  virtual Tensor awaited() { return {}; }
  virtual void settle() {}
  virtual void give_up() noexcept = 0;
};

}  // namespace coshard
