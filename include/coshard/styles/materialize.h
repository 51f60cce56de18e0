#pragma once
// Values for a module that was made under a DeferredInit. Rank's thread.
#include <coshard/dtensor/distribute/deferred_init.h>
#include <coshard/styles/module.h>

#pragma GCC visibility push(default)
namespace coshard {

// materialize of every parameter and buffer that has no memory yet: of all, or of those that `load`
// did not fill. Call it after the styles. Tied parameters stay tied. Values are those that the
// module would have had if it had been made without DeferredInit and cut by the same styles. No
// communication.
void materialize(Module& module, CallSite site = CallSite::current());

}  // namespace coshard
#pragma GCC visibility pop
