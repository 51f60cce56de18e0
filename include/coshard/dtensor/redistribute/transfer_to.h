#pragma once
// A plain tensor from one rank of the world to another.
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/runtime/call_site.h>

namespace coshard {

// On rank `to` of the world: x of rank `from`. On all other ranks: x itself, the same memory.
// Every rank of the world calls it, in the same order, with an x of the same shape and dtype.
// Issued by this call, which returns at once, also where x is in flight; several between the same
// two ranks arrive in the order of their calls. Collectives: a send and a recv. Differentiable,
// also twice: the gradient of what `to` got is added to that of rank `from`'s x; `to`'s own x gets
// none (zeros). from == to: x.
//   Resumes: co_await always suspends, on every rank, as for every redistribution; on `from` until
//            x may be written again. Hold the result so long: only then do writers of x wait.
//   Fails:   Error{BadInput}: x is undefined or a DTensor, a rank that is none of the world's, no
//            world on this thread. Error{CommFailed} on both ranks where shapes or dtypes differ.
Redistribution transfer(const Tensor& x, int from, int to, CallSite where = CallSite::current());

}  // namespace coshard
