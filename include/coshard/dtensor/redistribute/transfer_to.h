#pragma once
// A plain tensor from one rank of the world to another.
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/runtime/call_site.h>

#pragma GCC visibility push(default)
namespace coshard {

// On rank `to` of the world: rank `from`'s x. On all other ranks: x itself, sharing its memory.
// Called by every rank of the world, in the same order, with an x of the same shape and dtype.
// Issued by this call, which returns at once, even if x is in flight; transfers between the same
// two ranks arrive in the order of the calls. from == to: x. Twice differentiable: the gradient of
// what `to` received is added to that of `from`'s x; `to`'s own x gets none (zeros).
//   Resumes: co_await always suspends, on every rank, as for any redistribution; on `from` until x
//            may be written again. Keep the result until then: writers of x wait only while it is
//            held.
//   Moves:   one send and one recv.
//   Fails:   Error{BadInput}: x is undefined or a DTensor; a rank out of range; no world on this
//            thread. Error{CommFailed} on both ranks if shapes or dtypes differ.
Redistribution transfer(const Tensor& x, int from, int to, CallSite where = CallSite::current());

}  // namespace coshard
#pragma GCC visibility pop
