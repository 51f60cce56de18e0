#pragma once
// Matrix multiplication. See kernels/args.h.
#include "kernels/args/view.h"

namespace coshard::kernels {

// Applied to the result y before it is stored. `aux` is the other operand or result: contiguous, of
// out's dtype.
enum class Epilogue : std::uint8_t {
  None,
  Gelu,      // aux[..,m,n] = y; out = gelu(y), the tanh form
  GeluGrad,  // out = y * gelu'(aux[..,m,n]): y is the gradient of what Gelu gave
  BiasGrad,  // out = y; aux[m] = the sums of a's rows. With a = dy^T, out is the gradient of a
             // weight and aux that of a bias. ndim 2
};

// out[..,m,n] = alpha * a[..,m,k] @ b[..,k,n] + beta * out. ndim 2 or 3 (batch first; a batch
// stride of 0 broadcasts). Any strides with one unit stride among the last two dims of each view. k
// == 0 gives beta*out. Also integers: accumulation in i64, alpha and beta integral.
struct Matmul {
  View out, a, b;
  double alpha = 1, beta = 0;
  // Floating dtypes only: n elements of out's dtype, added to each row; null: none.
  const void* bias = nullptr;
  // Floating dtypes only. Gelu and GeluGrad require a contiguous row-major out.
  Epilogue epilogue = Epilogue::None;
  void* aux = nullptr;
};

// clang-format off
#define COSHARD_MATMUL_KERNELS(X) \
  X(Matmul)
// clang-format on

}  // namespace coshard::kernels
