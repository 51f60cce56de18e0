#pragma once
// A branch is one strand of a rank's program: the main program, and each child of a when_all. What
// a program sets within a scope (recording, default mesh, module path, random stream) belongs to
// the branch and is switched at every resumption, so a guard may be held across a co_await. Rank's
// thread.
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include <coshard/runtime/call_site.h>
#include <coshard/runtime/coro/suspension.h>

#pragma GCC visibility push(default)
namespace coshard {

class CancelScope;

class Branch {
 public:
  Branch();
  // Child number `position` of a when_all that `parent` awaits; `parent` does not run meanwhile.
  // `name`: shown in its path instead of the number.
  Branch(Branch& parent, int position, const std::string& name = "");
  ~Branch();
  Branch(const Branch&) = delete;
  Branch& operator=(const Branch&) = delete;

  static Branch& current() noexcept;  // of this thread's rank

  // Identifies the branch by the positions of the when_alls around it: equal on all ranks whose
  // programs have the same structure.
  std::uint64_t id() const noexcept { return id_; }
  bool is_main() const noexcept { return parent_ == nullptr; }
  // For texts: "main", "0.2"; of one nested deeper than 16, the innermost: "(3 more).0.1...".
  std::string path() const { return is_main() ? "main" : *child_path(); }
  const std::shared_ptr<const std::string>& child_path() const;  // null: the main branch

  // The cause of its cancellation; null: not cancelled.
  const std::exception_ptr& cancelled() const noexcept {
    return cancelled_ == nullptr ? cause_ : cancelled_within();
  }
  void throw_if_cancelled() const {
    if (const std::exception_ptr& cause = cancelled()) [[unlikely]]
      std::rethrow_exception(cause);
  }
  // From now on every await of the branch throws `cause`, including the one it is suspended in, and
  // nothing more is issued. The first cause is kept, unless only the second is a deadline, which
  // also ends what cannot be cancelled.
  void cancel(const std::exception_ptr& cause);
  // The token of the innermost scope.
  std::stop_token stop_token();

  // Destroys its branch-local values: on the rank's thread, before the branch is destroyed.
  void forget() noexcept;

  // It was resumed in completion order (as_it_comes, in_order) and may not issue collectives.
  bool unordered = false;
  Suspension* suspended = nullptr;
  CallLocation place;  // the location in the user's program (user_call.h)

 private:
  friend class CancelScope;
  template <class T>
  friend class BranchLocal;
  struct Slot {
    void* value = nullptr;
    void (*destroy)(void*) = nullptr;  // null: the value is the parent's
  };
  static int new_slot();
  const std::exception_ptr& cancelled_within() const noexcept;
  void end_wait();
  const void* find(int index) const noexcept {
    const auto i = static_cast<std::size_t>(index);
    return i < slots_.size() ? slots_[i].value : nullptr;
  }
  Slot& own(int index) {
    const auto i = static_cast<std::size_t>(index);
    if (i >= slots_.size()) slots_.resize(i + 1);
    return slots_[i];
  }

  Branch* parent_ = nullptr;
  std::uint64_t id_ = 0;
  int position_ = 0;
  int depth_ = 0;
  std::string name_;
  mutable std::shared_ptr<const std::string> path_;  // null: nobody has asked yet
  CancelScope* innermost_ = nullptr;
  CancelScope* cancelled_ = nullptr;  // the innermost that was cancelled
  std::exception_ptr cause_;
  std::optional<std::stop_source> stop_;
  std::vector<Slot> slots_;
};

// A part of a branch that can be cancelled separately: what with_deadline bounds. Lives in the
// coroutine; scopes of a branch nest.
class CancelScope {
 public:
  CancelScope();
  ~CancelScope();
  CancelScope(const CancelScope&) = delete;
  CancelScope& operator=(const CancelScope&) = delete;
  void cancel(const std::exception_ptr& cause);
  std::stop_token stop_token();

 private:
  friend class Branch;
  Branch& branch_;
  CancelScope* outer_;
  int depth_;
  std::exception_ptr cause_;
  std::stop_source stop_;
};

// A branch-local value. A child starts with its parent's.
template <class T>
class BranchLocal {
 public:
  BranchLocal() : index_(Branch::new_slot()) {}

  // Returns T() if nothing was set.
  const T& get() const {
    static const T nothing{};
    const void* value = Branch::current().find(index_);
    return value != nullptr ? *static_cast<const T*>(value) : nothing;
  }
  // The branch's own copy, for writing.
  T& own() const { return own(Branch::current()); }
  T& own(Branch& branch) const {
    Branch::Slot& slot = branch.own(index_);
    if (slot.destroy == nullptr) {
      slot.value = slot.value != nullptr ? new T(*static_cast<const T*>(slot.value)) : new T();
      slot.destroy = [](void* value) { delete static_cast<T*>(value); };
    }
    return *static_cast<T*>(slot.value);
  }

 private:
  int index_;
};

// Called with each new child, in order, before any runs: for values that a child does not simply
// inherit.
using BranchForked = void (*)(Branch& parent, Branch& child, int position);
bool on_branch_fork(BranchForked hook);

}  // namespace coshard
#pragma GCC visibility pop
