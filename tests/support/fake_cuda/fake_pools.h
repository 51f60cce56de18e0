#pragma once
// The fake's memory pools. A pool is a range of addresses of which parts are backed, out of the
// device's memory. What is freed turns to NaN when its stream
// comes to it, and is given out again by the rules of cuda.h (cudaMemPoolReuse*): on its stream at
// once; elsewhere when an event orders it after the free, or the free is over; and before memory
// runs out with a dependency of its own. Whatever else would use it reads NaN for some seed.
namespace coshard::testing {

bool is_of_a_pool(const void* data);
// An address of a pool that is nobody's memory now.
bool is_free_in_a_pool(const void* data);
// Complains when `data` is of another device's pool that this device has no access to: enabling
// peer access does not cover pools (CUDA programming guide, stream-ordered memory allocator).
void check_pool_access(int device, const void* data, const char* call);

}  // namespace coshard::testing
