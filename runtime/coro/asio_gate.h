#pragma once
// Access to an execution context that may have been destroyed, from a thread that does not run it:
// the context stays alive for the lifetime of an open Pass. A context closes its gate as the first
// step of its destruction and waits for open passes, so nothing is posted to a half-destroyed
// context and none of its handlers is destroyed on another thread. A GatedExecutor acts as the
// executor of its io_context until the io_context is destroyed; after that it drops submitted
// functions on the submitting thread.
#include <atomic>
#include <boost/asio/execution.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/require.hpp>
#include <boost/asio/system_context.hpp>
#include <boost/asio/system_executor.hpp>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>

namespace coshard {

class AsioGate {
 public:
  explicit AsioGate(boost::asio::execution_context& context) noexcept : context_(context) {}
  AsioGate(const AsioGate&) = delete;
  AsioGate& operator=(const AsioGate&) = delete;

  // While a Pass is open on any thread, the io_context is alive. Passes may be nested.
  class Pass {
   public:
    explicit Pass(AsioGate& gate) noexcept : gate_(gate) {
      // Acquire: pairs with close(), so that a refused thread sees all writes before it.
      open_ = (gate_.state_.fetch_add(1, std::memory_order_acquire) & kClosed) == 0;
    }
    // Release: the io_context is not touched after this.
    ~Pass() { gate_.state_.fetch_sub(1, std::memory_order_release); }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;
    explicit operator bool() const noexcept { return open_; }
    boost::asio::execution_context& context() const noexcept { return gate_.context_; }

   private:
    AsioGate& gate_;
    bool open_;
  };

  // Returns when no Pass is open any more.
  void close() noexcept {
    std::uint32_t state = state_.fetch_or(kClosed, std::memory_order_acq_rel);
    while ((state & ~kClosed) != 0) {
      std::this_thread::yield();
      // Acquire: their uses of the io_context happen before the return.
      state = state_.load(std::memory_order_acquire);
    }
  }

 private:
  static constexpr std::uint32_t kClosed = 1U << 31;
  boost::asio::execution_context& context_;
  std::atomic<std::uint32_t> state_{0};  // number of open passes, and kClosed
};

// Holds a context's gate and closes it when destruction of the context begins. Create it after the
// services that its users need: services are shut down newest first.
class AsioGateService final : public boost::asio::execution_context::service {
 public:
  inline static boost::asio::execution_context::id id;
  explicit AsioGateService(boost::asio::execution_context& context)
      : service(context), gate_(std::make_shared<AsioGate>(context)) {}
  const std::shared_ptr<AsioGate>& gate() const noexcept { return gate_; }
  static std::shared_ptr<AsioGate> gate_of(boost::asio::execution_context& context) {
    return boost::asio::use_service<AsioGateService>(context).gate();
  }

 private:
  void shutdown() noexcept override { gate_->close(); }
  std::shared_ptr<AsioGate> gate_;
};

class GatedExecutor {
  using Blocking = boost::asio::execution::blocking_t;
  using Relationship = boost::asio::execution::relationship_t;
  using Work = boost::asio::execution::outstanding_work_t;

 public:
  explicit GatedExecutor(std::shared_ptr<AsioGate> gate) noexcept : gate_(std::move(gate)) {}
  GatedExecutor(const GatedExecutor& other) noexcept
      : GatedExecutor(other.gate_, other.tracked_, other.never_blocks_, other.continues_) {}
  GatedExecutor(GatedExecutor&&) noexcept = default;  // the work count moves with the gate
  GatedExecutor& operator=(const GatedExecutor&) = delete;
  ~GatedExecutor() {
    if (!gate_ || !tracked_) return;
    if (const AsioGate::Pass pass(*gate_); pass) executor_of(pass).on_work_finished();
  }

  template <class Function>
  void execute(Function function) const {
    const AsioGate::Pass pass(*gate_);
    if (!pass) return;
    auto executor = executor_of(pass);
    if (never_blocks_) executor = boost::asio::require(executor, Blocking::never);
    if (continues_) executor = boost::asio::require(executor, Relationship::continuation);
    executor.execute(std::move(function));
  }

  friend bool operator==(const GatedExecutor& a, const GatedExecutor& b) noexcept {
    return a.gate_ == b.gate_ && a.never_blocks_ == b.never_blocks_ &&
           a.continues_ == b.continues_ && a.tracked_ == b.tracked_;
  }
  friend bool operator!=(const GatedExecutor& a, const GatedExecutor& b) noexcept {
    return !(a == b);
  }

  // An I/O object constructed from it after the io_context is destroyed gets the system context,
  // and its handlers are dropped in execute().
  boost::asio::execution_context& query(boost::asio::execution::context_t) const {
    if (const AsioGate::Pass pass(*gate_); pass) return pass.context();
    return boost::asio::query(boost::asio::system_executor(), boost::asio::execution::context);
  }
  static constexpr boost::asio::execution::mapping_t query(
      boost::asio::execution::mapping_t) noexcept {
    return boost::asio::execution::mapping_t::thread;
  }
  Blocking query(Blocking) const noexcept {
    return never_blocks_ ? Blocking(Blocking::never) : Blocking(Blocking::possibly);
  }
  Relationship query(Relationship) const noexcept {
    return continues_ ? Relationship(Relationship::continuation) : Relationship(Relationship::fork);
  }
  Work query(Work) const noexcept { return tracked_ ? Work(Work::tracked) : Work(Work::untracked); }

  GatedExecutor require(Blocking::never_t) const noexcept {
    return {gate_, tracked_, true, continues_};
  }
  GatedExecutor require(Blocking::possibly_t) const noexcept {
    return {gate_, tracked_, false, continues_};
  }
  GatedExecutor require(Relationship::continuation_t) const noexcept {
    return {gate_, tracked_, never_blocks_, true};
  }
  GatedExecutor require(Relationship::fork_t) const noexcept {
    return {gate_, tracked_, never_blocks_, false};
  }
  GatedExecutor require(Work::tracked_t) const noexcept {
    return {gate_, true, never_blocks_, continues_};
  }
  GatedExecutor require(Work::untracked_t) const noexcept {
    return {gate_, false, never_blocks_, continues_};
  }

 private:
  GatedExecutor(std::shared_ptr<AsioGate> gate, bool tracked, bool never_blocks,
                bool continues) noexcept
      : gate_(std::move(gate)),
        tracked_(tracked),
        never_blocks_(never_blocks),
        continues_(continues) {
    if (!tracked_) return;
    if (const AsioGate::Pass pass(*gate_); pass) executor_of(pass).on_work_started();
  }

  static boost::asio::io_context::executor_type executor_of(const AsioGate::Pass& pass) noexcept {
    return static_cast<boost::asio::io_context&>(pass.context()).get_executor();
  }

  std::shared_ptr<AsioGate> gate_;  // of an io_context; null: moved from
  bool tracked_ = false;            // counts as work of the io_context
  bool never_blocks_ = false;       // `execute` never runs the function inline
  bool continues_ = false;
};

}  // namespace coshard
