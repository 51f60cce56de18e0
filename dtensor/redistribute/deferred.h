#pragma once
// Redistributes that are issued when their data are first read: what recomputation uses, so that a
// collective whose result nobody reads again (a block's output) is not repeated. Rank's thread.
#include <coshard/dtensor/tensor.h>

namespace coshard {

// While one lives, redistribute() in this branch issues nothing: its collectives are issued when
// the result is read, awaited, redistributed or sent. All ranks do that alike, so the order of
// collectives stays the program's.
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

}  // namespace coshard
