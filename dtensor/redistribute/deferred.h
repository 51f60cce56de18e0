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
  Poll poll(Poller by, int) final { return issued().poll(by); }
  void wait(int) final { issued().wait(); }
  void check(std::int64_t waited_ns) final { issued().check(waited_ns); }
  bool subscribe(Parker& parker) final { return issued().subscribe(parker); }
  void note(WorkEvent event) final {
    if (event != WorkEvent::Runs && event != WorkEvent::DependentAwaited) issued();
    WorkState::note(event);
  }
  WorkInfo info(int) const final { return inner() ? inner()->info() : WorkInfo(); }

 private:
  virtual std::shared_ptr<WorkState> issue() = 0;
  WorkState& issued() {
    if (!inner()) set_inner(issue());
    return *inner();
  }
};

// redistribute_raw(source, target, by_shards), issued when the result is first read.
Tensor redistribute_later(const DTensor& source, const Layout& target, bool by_shards);

// The tensor in flight that receives the data of x, shard by shard if possible: x itself or, for a
// deferred redistribute, which is issued now, its result before it is copied to x.
Tensor source_in_flight(const Tensor& x);

}  // namespace coshard
