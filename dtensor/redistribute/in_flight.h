#pragma once
// Tensors whose data are still being transferred: handles, work that follows their arrival, and
// transfers that wait for it. Rank's thread.
#include <functional>

#include <coshard/dtensor/tensor/tensor.h>
#include <coshard/runtime/comm/work.h>
#include "runtime/comm/collective.h"

namespace coshard {

// A handle to the same memory that does not wait.
Tensor place_of(const Tensor& x);

// The same memory, separately in flight: on all ranks alike, whatever each of them waits for.
Tensor same_in_flight(const Tensor& x, Work work);

// For a rank that receives no data: `to` is in flight while `from` is.
void share_pending_work(const Tensor& from, const Tensor& to);

// If a deferred redistribute will fill x, it is issued now: by all ranks, whether or not this one
// reads x.
void issue_deferred(const Tensor& x);

// The transfer of `collective` begins once `from`, which it sends, has arrived.
void chain(Collective& collective, const Tensor& from);

// `make` writes `to` from `from`: now, or once `from` has arrived; until then `to` is in flight.
void make_from(const Tensor& from, const Tensor& to, std::function<void(const Tensor& from)> make);

// As copy_of, for a tensor that may be in flight.
Tensor copy_later(const Tensor& tensor);

// The local tensor cast to another dtype, in flight if it is; layout and logical shape stay. Off
// the tape.
Tensor cast_local(const Tensor& tensor, DType dtype);

}  // namespace coshard
