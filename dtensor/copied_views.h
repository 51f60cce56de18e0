#pragma once
// Views that a layout does not allow: x[0] of an x whose rows are sharded. The view operator
// redistributes x first, so that its result is a copy. A write to the copy is written into x, with
// its gradient; a copy that is behind x is made again before an operator, a redistribute or a write
// uses it, and so is its detach(). Both may communicate, so all ranks must do the same. Rank's thread.
#include <cstdint>
#include <span>

#include <coshard/dtensor/ops/op.h>

namespace coshard {

// Shared by the copy and its views (Tensor::copied_view).
struct CopiedView {
  Tensor of;  // what it shows a part of
  const OpDef* op;
  Attrs attrs;
  bool taped;  // made with the tape on
  // It was written to on the tape, so that its gradient has yet to pass through `of`: it is made again
  // before an operator uses it.
  bool passes_by = false;
  // How many writes to `of` the memory shows; one number for all that share the memory.
  std::shared_ptr<std::uint32_t> seen = std::make_shared<std::uint32_t>(of.storage()->changes());
  // The copy that this is the detach() of: while it lives, it is made again in place of this.
  Tensor::Weak detached_from{Tensor()};

  bool is_behind() const {
    return *seen != of.storage()->changes() || (of.copied_view() && of.copied_view()->is_behind());
  }
};

// Makes the copy that x is, or is a view of, again if it is behind. Error{BadInput} if that would
// lose a gradient: it was made under a NoGradGuard.
void make_again(const Tensor& x);
inline void catch_up_with_writes(std::span<const Tensor> tensors) {
  for (const Tensor& t : tensors)
    if (t.defined() && t.copied_view()) [[unlikely]]
      make_again(t);
}

// Error{BadInput} if x is, or is a view of, a copy that is behind: for what must not communicate.
inline void require_up_to_date(const Tensor& x) {
  CS_REQUIRE(!x.copied_view() || !x.copied_view()->is_behind(), x,
             " is a copy that a view operator made, and ", x.copied_view()->of,
             " was changed in place since; take the view again");
}

// Makes `detached`, a handle to x's memory off the tape, a view of the same as x.
void view_as_detached(const Tensor& x, const Tensor& detached);

// Writes what x's memory holds into what x shows a part of. Nothing if it is no such copy.
void write_back(const Tensor& x);

}  // namespace coshard
