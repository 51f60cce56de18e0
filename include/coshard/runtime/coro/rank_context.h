#pragma once
// All state of a rank in one object; a thread only holds a pointer to the current one, so any
// number of ranks can share a thread. Threads without a rank have their own context.
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <coshard/runtime/coro/branch.h>
#include <coshard/runtime/coro/parker.h>

#pragma GCC visibility push(default)
namespace coshard {

class Executor;
struct Neighbours;

// What a rank waits for in place, for reports.
class WaitInPlace {
 public:
  virtual std::string text() const = 0;

 protected:
  ~WaitInPlace() = default;
};
class WaiterState;

class RankContext {
 public:
  // `parker`: where the rank sleeps; null: on its thread.
  explicit RankContext(Parker* parker = nullptr);
  ~RankContext();
  RankContext(const RankContext&) = delete;
  RankContext& operator=(const RankContext&) = delete;

  static RankContext& current() noexcept {
    return current_ != nullptr ? *current_ : of_this_thread();
  }
  // Ends the rank: destroys its values, on its thread, while it is current. Parker and executor,
  // which other threads may still use, stay.
  void end() noexcept;
  // Makes it current on this thread; returns the previous one, null for the thread's own.
  static RankContext* exchange(RankContext* context) noexcept;

  Branch& branch() const noexcept { return *branch_; }
  void set_branch(Branch& branch) noexcept { branch_ = &branch; }
  Branch& root() noexcept { return root_; }
  Parker& parker() const noexcept { return *parker_; }

  Executor* executor = nullptr;               // the one that runs, or null
  void* world = nullptr;                      // see World::current
  std::string_view allocations_are_for = "";  // see AllocationLabel
  const WaitInPlace* in_place = nullptr;   // null: it does not wait in place, or has not slept yet
  const Neighbours* neighbours = nullptr;  // on a caller's context (run_on_asio.h), or null
  WaiterState* waiter_state =
      nullptr;  // in the deadlock detector of its world (deadlock_detector.h), or null

 private:
  template <class T>
  friend class RankLocal;
  struct Slot {
    void* value = nullptr;
    void (*destroy)(void*) = nullptr;
  };
  static RankContext& of_this_thread() noexcept;
  static int new_slot();
  Slot& slot(int index) {
    const auto i = static_cast<std::size_t>(index);
    if (i >= slots_.size()) [[unlikely]]
      slots_.resize(i + 1);
    return slots_[i];
  }

  inline static constinit thread_local RankContext* current_ = nullptr;

  ThreadParker own_parker_;
  Parker* parker_;
  Branch root_;
  Branch* branch_ = &root_;
  std::vector<Slot> slots_;
  std::vector<int> made_;  // slots in the order in which their values were created
};

// A rank-local value, created on first use: what a thread_local would be if every rank were a
// thread.
template <class T>
class RankLocal {
 public:
  RankLocal() : index_(RankContext::new_slot()) {}
  T& operator*() const {
    RankContext& context = RankContext::current();
    RankContext::Slot& slot = context.slot(index_);
    if (slot.value == nullptr) [[unlikely]] {
      slot.value = new T();
      slot.destroy = [](void* value) { delete static_cast<T*>(value); };
      context.made_.push_back(index_);
    }
    return *static_cast<T*>(slot.value);
  }
  T* operator->() const { return &**this; }

 private:
  int index_;
};

}  // namespace coshard
#pragma GCC visibility pop
