#pragma once
// Who gathers the gradients of some leaves while backward runs, and sends them on as soon as they
// are complete. Leaves refer to it (GradMeta::collector). Rank's thread.
#include <span>

#include <coshard/dtensor/tape.h>

namespace coshard {

class GradCollector {
 public:
  virtual ~GradCollector() = default;
  // A backward begins that reaches these leaves, by their numbers (GradMeta::collected_as), in the
  // order in which their gradients will be complete. Whether it must tell complete() and end().
  // Error{BadInput}: another such backward has not ended.
  virtual bool begin(std::span<const int> reached) = 0;
  // Where an operator may write the first gradient of `leaf`; undefined: in memory of its own.
  virtual Tensor place(const GradMeta& leaf) = 0;
  // Adds `gradient`, which is not in flight, to leaf.gradient, which is not either.
  // Error{BadInput}: it would be counted twice.
  virtual void add(GradMeta& leaf, Tensor gradient) = 0;
  // Nothing more will be added to this leaf's gradient in this backward.
  virtual void complete(int leaf) = 0;
  // The backward has ended, or failed.
  virtual void end() = 0;
  virtual void give_up() noexcept = 0;
};

}  // namespace coshard
