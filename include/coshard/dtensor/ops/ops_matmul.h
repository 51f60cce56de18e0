#pragma once
// Matrix multiplication: matmul and operators built on it. Conventions: coshard/dtensor/ops/ops.h.
#include <string_view>

#include <coshard/dtensor/tensor/tensor.h>

#pragma GCC visibility push(default)
namespace coshard {

// a[..., m, k] @ b[..., k, n]; leading dims broadcast. A 1-D a is a row, a 1-D b a column; that dim
// is dropped from the result (torch.matmul). Integers have no gradient. No collectives for (S(m),
// R), (R, S(n)), (S(k), S(k)) -> Partial(sum), a sharded leading dim, and (Partial, R) or (R,
// Partial) -> Partial for sum and avg; if both are Partial over the same mesh dim, one is reduced.
Tensor matmul(const Tensor& a, const Tensor& b, CallSite site = CallSite::current());
// The same for fixed dimensions: [m,k] @ [k,n]; [b,m,k] @ [b,k,n]; [m,k] @ [k]; [k] . [k].
Tensor mm(const Tensor& a, const Tensor& b, CallSite site = CallSite::current());
Tensor bmm(const Tensor& a, const Tensor& b, CallSite site = CallSite::current());
Tensor mv(const Tensor& a, const Tensor& v, CallSite site = CallSite::current());
Tensor dot(const Tensor& a, const Tensor& b, CallSite site = CallSite::current());
// a[m], b[n] -> [m, n]
Tensor outer(const Tensor& a, const Tensor& b, CallSite site = CallSite::current());
// beta * bias + alpha * a @ b for [m,k] @ [k,n], or [b,m,k] @ [b,k,n] (torch.addmm, torch.baddbmm).
// bias broadcasts to the result; with beta 0 its values are not read. A sharded k gives
// Partial(sum), to which each rank adds its share of the bias.
Tensor addmm(const Tensor& bias, const Tensor& a, const Tensor& b, double beta = 1,
             double alpha = 1, CallSite site = CallSite::current());
// torch.einsum of two operands: "bshd,bthd->bhst"; without "->" the result has the indices that
// occur once, in alphabetical order. "..." stands for the leading dims without an index; an index
// repeated in one operand takes its diagonal; indices of only one operand that are not in the
// result are summed first; size 1 broadcasts. Sharding an index of the result shards the result,
// sharding a contracted one gives Partial(sum); Partials pass through as in matmul.
Tensor einsum(std::string_view equation, const Tensor& a, const Tensor& b,
              CallSite site = CallSite::current());
// x[..., in] @ weight[out, in]^T + bias[out] (optional); x may be [in]. The gradient of a leaf
// weight is computed under the next collective of backward.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              CallSite site = CallSite::current());
// into = or += a @ b, off the tape, on plain tensors (for rows of a result, as shards arrive).
void matmul_into(const Tensor& into, const Tensor& a, const Tensor& b, bool accumulate = false);

}  // namespace coshard
#pragma GCC visibility pop
