#pragma once
// What a tensor without memory waits for (deferred_init.h).
#include <coshard/runtime/comm/work.h>

namespace coshard {

// Nothing completes it: a wait fails.
class DeferredValues : public WorkState {};

}  // namespace coshard
