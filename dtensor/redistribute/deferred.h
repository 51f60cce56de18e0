#pragma once
// Redistributes that are issued when their data are first read, for recomputation: a collective
// whose result nobody reads again (a block's output) is not repeated. Rank's thread.
#include <memory>
#include <string>

#include <coshard/dtensor/tensor/tensor.h>
#include <coshard/runtime/comm/work.h>

namespace coshard {

// While one is alive, redistribute() in this branch issues nothing: its collectives are issued when
// the result is read, awaited, redistributed or sent. All ranks do so alike, so collectives stay in
// program order.
class DeferRedistributes {
 public:
  DeferRedistributes();
  ~DeferRedistributes();
  DeferRedistributes(const DeferRedistributes&) = delete;
  DeferRedistributes& operator=(const DeferRedistributes&) = delete;

 private:
  bool before_;
};
bool redistributes_are_deferred();

// Work that is issued when the rank first awaits, reads or needs it; from then on it forwards to
// what `issue` returned.
class IssuedLater : public WorkState {
 public:
  void issue_now() final { static_cast<void>(work()); }
  bool ready() final { return work().ready(); }
  void wait() final { work().wait(); }
  int parts() const final { return 1; }
  bool part_ready(int) final { return ready(); }
  void wait_part(int) final { wait(); }
  bool waits_for_peers() const final { return !work_ || work_->waits_for_peers(); }
  bool any_thread() const final { return work_ && work_->any_thread(); }
  Look look(int part) final { return work().look(part); }
  void begin_wait() final { work().begin_wait(); }
  void end_wait() final {
    if (work_) work_->end_wait();
  }
  bool listen(Parker& parker) final { return work().listen(parker); }
  void deaf(Parker& parker) noexcept final {
    if (work_) work_->deaf(parker);
  }
  void check(std::int64_t waited_ns) final { work().check(waited_ns); }
  std::int64_t timeout_ns() const final { return work_ ? work_->timeout_ns() : 0; }
  std::int64_t not_before(int part) const final { return work_ ? work_->not_before(part) : 0; }
  void on_wait_abandoned() final { work().on_wait_abandoned(); }
  void poison(const std::string& cause) final {
    if (work_) work_->poison(cause);
  }
  Look push() final { return work().push(); }
  std::string failure() const final { return work_ ? work_->failure() : ""; }
  void mark_has_dependents() final { work().mark_has_dependents(); }

 private:
  virtual std::shared_ptr<WorkState> issue() = 0;
  WorkState& work() {
    if (!work_) work_ = issue();
    return *work_;
  }
  std::shared_ptr<WorkState> work_;
};

// redistribute_raw(source, target), issued when the result is first read.
Tensor redistribute_later(const DTensor& source, const Layout& target);

// The tensor in flight that receives the data of x, shard by shard if possible: x itself or, for a
// deferred redistribute, which is issued now, its result before it is copied to x.
Tensor source_in_flight(const Tensor& x);

}  // namespace coshard
