#pragma once
// Products of matrices. See kernels/args.h.
#include "kernels/args/view.h"

namespace coshard::kernels {

// out[..,m,n] = alpha * a[..,m,k] @ b[..,k,n] + beta * out. ndim 2 or 3 (batch first; a batch
// stride of 0 broadcasts). Any strides with one unit stride among the last two dims of each view. k
// == 0 gives beta*out. Integers too: sums in i64, alpha and beta integral.
struct Matmul {
  View out, a, b;
  double alpha = 1, beta = 0;
};

}  // namespace coshard::kernels
