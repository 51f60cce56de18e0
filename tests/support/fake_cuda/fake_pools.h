#pragma once
// The fake's memory pools. A pool is a range of addresses, parts of which are backed by the
// device's memory. Freed memory is filled with NaN when its stream reaches the free, and is reused
// by the rules of cuda.h (cudaMemPoolReuse*): on its stream at once; elsewhere when an event orders
// it after the free, or the free is over; and before memory runs out, with an inserted dependency.
// Any other use reads NaN for some seed.
namespace coshard::testing {

bool is_of_a_pool(const void* data);
// Whether it is an address of a pool that is not allocated now.
bool is_free_in_a_pool(const void* data);
// Complains if `data` is in another device's pool to which this device has no access: enabling peer
// access does not cover pools (CUDA programming guide, stream-ordered memory allocator).
void check_pool_access(int device, const void* data, const char* call);

}  // namespace coshard::testing
