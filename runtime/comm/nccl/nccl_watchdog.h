#pragma once
// The single thread, "nccl watchdog", that monitors the NCCL communicators of this process: started
// with the first and joined with the last. A rank blocked inside NCCL or the driver cannot see that
// a peer has failed; this thread checks every 10 ms, and begins the abort that releases the rank.
// It polls NCCL for asynchronous errors, enforces the deadlines of calls and of compute stream
// waits, and never blocks on a rank. Functions are for any thread.
namespace coshard {

class NcclCommunicator;

void begin_nccl_watch(NcclCommunicator& communicator);
// Once this has returned, the thread no longer uses the communicator.
void end_nccl_watch(NcclCommunicator& communicator) noexcept;

}  // namespace coshard
