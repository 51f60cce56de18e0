#pragma once
// What a tensor knows of the view that its layout did not allow, so that it is a copy
// (dtensor/ops/copied_views.h, which makes it). Rank's thread.
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include <coshard/dtensor/tensor/tensor.h>

namespace coshard {

// Shared by the copy and its views (Tensor::copied_view).
struct CopiedView {
  CopiedView(Tensor shown, bool on_tape) : of(std::move(shown)), taped(on_tape) {}
  virtual ~CopiedView() = default;
  CopiedView(const CopiedView&) = delete;
  CopiedView& operator=(const CopiedView&) = delete;
  // Makes the copy that x is, or is a view of, again if it is behind.
  virtual void make_again(const Tensor& x) = 0;

  Tensor of;   // what it shows a part of
  bool taped;  // made with the tape on
  // Perhaps no view on one device (has_unknown_strides): it cannot be used once `of` has changed.
  bool unsure = false;
  // Perhaps `of` itself there, with its hooks and its gradient.
  bool may_be_itself = false;
  bool detached = false;  // the detach() of one: never on the tape
  // It was written to on the tape, so that its gradient has yet to pass through `of`: it is made
  // again before an operator uses it.
  bool passes_by = false;
  // One for all that share the memory.
  struct Memory {
    std::uint32_t seen;  // how many writes to `of` it shows
    // When the copy was last recorded again: writes() then, the taped write before, and the one
    // that this counts as. A handle off the tape that was taken then and knows the former knows the
    // latter.
    std::uint32_t renewed_at = 0, renewed_from = 0, renewed_to = 0;
  };
  std::uint32_t taken = writes();  // when this was made
  std::shared_ptr<Memory> memory = std::make_shared<Memory>(Memory{of.storage()->changes()});
  // The copy that this is the detach() of: while it lives, it is made again in place of this.
  Tensor::Weak detached_from{Tensor()};
  // Of `of` when this was recorded; null if it was not.
  std::shared_ptr<GradMeta> history = taped ? of.grad_meta() : nullptr;
  std::uint32_t taped_write = last_taped_write();  // when this was made

  // To what is shown in the end, without those that make copies between again.
  std::uint32_t writes() const {
    return of.copied_view() ? of.copied_view()->writes() : of.storage()->changes();
  }
  // The last write on the tape to what is shown in the end.
  std::uint32_t last_taped_write() const {
    return of.copied_view() ? of.copied_view()->last_taped_write()
                            : of.storage()->buffer->taped_write;
  }
  bool is_behind() const {
    return memory->seen != of.storage()->changes() ||
           (of.copied_view() && of.copied_view()->is_behind());
  }
};

inline void catch_up_with_writes(std::span<const Tensor> tensors) {
  for (const Tensor& t : tensors)
    if (t.defined() && t.copied_view()) [[unlikely]]
      t.copied_view()->make_again(t);
}

// Error{BadInput} if x is, or is a view of, a copy that is behind: for what must not communicate.
inline void require_up_to_date(const Tensor& x) {
  CS_REQUIRE(!x.copied_view() || !x.copied_view()->is_behind(), x,
             " is a copy that a view operator made, and ", x.copied_view()->of,
             " was changed in place since; take the view again");
}

// What is wrong with a copy made by a view operator, and what to do (Tensor::set_unwritable).
extern const char* const kCopyOfView;
// The same for one that follows what it shows, and handles to its memory.
extern const char* const kCopiedView;
extern const char* const kUnsureView;
// Of another library's memory (from_dlpack).
extern const char* const kReadOnly;

}  // namespace coshard
