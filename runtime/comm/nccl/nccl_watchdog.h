#pragma once
// The one thread that looks after the NCCL communicators of this process, "nccl watchdog": it
// starts with the first and is joined with the last. A rank that is blocked inside of NCCL or of
// the driver cannot see that a peer has failed; this thread does, every 10 ms, and begins the abort
// that lets the rank go. It asks NCCL for asynchronous errors, knows the deadlines of calls and of
// what a compute stream waits for, and waits for nobody. Functions are for any thread.
namespace coshard {

class NcclCommunicator;

void begin_nccl_watch(NcclCommunicator& communicator);
// Returns when the thread is not looking at it and will not any more.
void end_nccl_watch(NcclCommunicator& communicator) noexcept;

}  // namespace coshard
