#pragma once
// Whether the current branch computes one part of a woven batch. Rank's thread.

namespace coshard {

// The other parts compute while this one waits: splitting a GEMM to overlap it with its own
// collective would cost more, and hide no more. The same on all ranks, as the program's structure
// determines it. False while a part is recomputed: nothing else runs then.
bool computes_a_woven_part();

}  // namespace coshard
