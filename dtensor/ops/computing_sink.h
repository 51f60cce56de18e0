#pragma once
// A sink of gradients that computes each product when it is given. Rank's thread.
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/tape/tape.h>
#include "dtensor/ops/products.h"

namespace coshard {

class ComputingSink : public GradSink {
 public:
  void accumulate_product(int input, const Tensor& dy, const Tensor& weight, Overlap) override {
    accumulate(input, matmul(dy, weight));
  }
  void defer_rows_product(int input, const Tensor& dy, const Tensor& x) override {
    defer(input, [=] { return matmul_rows(dy, x); });
  }
};

}  // namespace coshard
