#pragma once
// Whether what runs is one part of a woven batch. Rank's thread.

namespace coshard {

// The other parts compute while this one waits: a product that is cut to overlap with its own
// collective then costs more and hides nothing that they would not. Equal on all ranks, by the
// structure of the program. False where recomputation repeats a part: nothing else runs then.
bool computes_a_woven_part();

}  // namespace coshard
