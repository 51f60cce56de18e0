#pragma once
// A debug check of every operator's outputs. Rank's thread.
#include <coshard/dtensor/ops/op.h>

namespace coshard {

// Called after an operator has computed `made`, on a rank that is observed; not for views.
using OutputCheck = void (*)(const OpDef& op, const OpContext& made);
// Sets that of this rank; null: none.
void set_output_check(OutputCheck check);

}  // namespace coshard
