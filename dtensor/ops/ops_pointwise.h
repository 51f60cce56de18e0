#pragma once
// One element at a time: arithmetic, comparisons, activations, casts, in-place forms.
// Conventions: dtensor/ops/ops.h.
#include "dtensor/tensor.h"

namespace coshard {

// Broadcasting. alpha scales b. Partial + Partial stays Partial; Partial + Replicate stays Partial
// (the replica is split).
Tensor add(const Tensor& a, const Tensor& b, double alpha = 1);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);
Tensor add(const Tensor& a, double scalar);  // a Partial is reduced first
Tensor mul(const Tensor& a, double scalar);  // a Partial(sum|avg) stays
inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator*(const Tensor& a, double scalar) { return mul(a, scalar); }

Tensor neg(const Tensor& x);
Tensor relu(const Tensor& x);
Tensor silu(const Tensor& x);
Tensor gelu(const Tensor& x, bool tanh_approximation = false);
// silu(a) * b in one pass
Tensor swiglu(const Tensor& a, const Tensor& b);
Tensor to(const Tensor& x, DType dtype);
// Zeroes elements with probability p, scales the rest by 1/(1-p). Draws by the global element index
// from the world's generator (random.h), so any layout drops what one device would. A Partial input
// is reduced first. p = 0: x itself.
Tensor dropout(const Tensor& x, double p, bool training = true);

}  // namespace coshard
