#pragma once
// Products: matmul and what is written with it.
// Conventions: coshard/dtensor/ops/ops.h.
#include <string_view>

#include <coshard/dtensor/tensor.h>

namespace coshard {

// a[..., m, k] @ b[..., k, n]; leading dims broadcast, a 1-D a is a row, a 1-D b a column, and such
// a dim is not in the result (torch.matmul). Integers have no gradient. 0 collectives for (S(m),
// R), (R, S(n)), (S(k), S(k)) -> Partial(sum), a cut leading dim, and (Partial, R) or (R, Partial)
// -> Partial for sum and avg; of two Partials along one mesh dim one is reduced.
Tensor matmul(const Tensor& a, const Tensor& b, CallSite site = CallSite::current());
// The same for fixed ranks: [m,k] @ [k,n]; [b,m,k] @ [b,k,n]; [m,k] @ [k]; [k] . [k].
Tensor mm(const Tensor& a, const Tensor& b, CallSite site = CallSite::current());
Tensor bmm(const Tensor& a, const Tensor& b, CallSite site = CallSite::current());
Tensor mv(const Tensor& a, const Tensor& v, CallSite site = CallSite::current());
Tensor dot(const Tensor& a, const Tensor& b, CallSite site = CallSite::current());
// a[m], b[n] -> [m, n]
Tensor outer(const Tensor& a, const Tensor& b, CallSite site = CallSite::current());
// beta * bias + alpha * a @ b on [m,k] @ [k,n], or [b,m,k] @ [b,k,n] (torch.addmm, torch.baddbmm).
// bias broadcasts to the result; with beta 0 its values are not read. A cut k gives Partial(sum)
// to which each rank adds its share of the bias.
Tensor addmm(const Tensor& bias, const Tensor& a, const Tensor& b, double beta = 1,
             double alpha = 1, CallSite site = CallSite::current());
// torch.einsum of two operands: "bshd,bthd->bhst", or without "->" (letters that occur once, in
// alphabetical order). "..." stands for the leading dims without a letter; a letter twice in one
// operand reads its diagonal; letters of one operand that the result lacks are summed out first;
// size 1 stretches to the other operand's size. Cutting a letter of the result cuts the result,
// cutting a contracted one gives Partial(sum); Partials pass as in matmul.
Tensor einsum(std::string_view equation, const Tensor& a, const Tensor& b,
              CallSite site = CallSite::current());
// x[..., in] @ weight[out, in]^T + bias[out] (optional); x may be [in]. The gradient of a leaf
// weight is deferred under the next collective.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              CallSite site = CallSite::current());
// into += or = a @ b, off the tape, on plain tensors (rows of a result as shards arrive).
void matmul_into(const Tensor& into, const Tensor& a, const Tensor& b, bool accumulate = false);

}  // namespace coshard
