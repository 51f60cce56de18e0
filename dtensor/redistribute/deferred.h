#pragma once
// Redistributes that are issued when their data are first read, for recomputation: a collective
// whose result nobody reads again (a block's output) is not repeated. Rank's thread.
#include <coshard/dtensor/tensor.h>

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

// redistribute_raw(source, target), when the result is first read.
Tensor redistribute_later(const DTensor& source, const Layout& target);

// What brings the data of x, shard by shard if it can: x itself, or what a deferred redistribute, issued
// now, receives before it is copied to x. In flight.
Tensor brought_by(const Tensor& x);

}  // namespace coshard
