#pragma once
// Views that a layout does not allow: x[0] of an x whose rows are sharded. The view operator
// redistributes x first, so that its result is a copy. A write to the copy is written into x, with
// its gradient; a copy that is behind x is made again before an operator, a redistribute or a write
// uses it, and so is its detach(). Both may communicate, so all ranks must do the same. Rank's
// thread.
#include <coshard/dtensor/ops/op.h>
#include "dtensor/tensor/copied_view.h"

namespace coshard {

// One that a view operator has made.
struct OperatorView final : CopiedView {
  OperatorView(Tensor shown, bool on_tape, const OpDef& by, const Attrs& with)
      : CopiedView(std::move(shown), on_tape), op(&by), attrs(with) {}
  // Hooks of x stay unless what it shows was written on the tape: then they belong to the values
  // before, as those of any view do. Error{BadInput} if that would lose a gradient: it was made
  // under a NoGradGuard.
  void make_again(const Tensor& x) override;

  const OpDef* op;
  Attrs attrs;
};

// A detach() that shows the values for which its copy was recorded again knows that record's write.
void know_renewal(const Tensor& x);

// Whether x, which is behind, will require a gradient once it is made again.
bool will_require_grad(const Tensor& x);

// Makes `detached`, a handle to x's memory off the tape, a view of the same as x.
void view_as_detached(const Tensor& x, const Tensor& detached);

// Writes what x's memory holds into what x shows a part of. Nothing if it is no such copy.
void write_back(const Tensor& x);

}  // namespace coshard
