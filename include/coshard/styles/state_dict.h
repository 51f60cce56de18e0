#pragma once
// The state of a module under torch's names: what save and load (dtensor/checkpoint) take. Rank's
// thread.
#include <coshard/dtensor/checkpoint/async_save.h>
#include <coshard/dtensor/checkpoint/load.h>
#include <coshard/dtensor/checkpoint/save.h>
#include <coshard/dtensor/checkpoint/state.h>
#include <coshard/styles/module.h>

#pragma GCC visibility push(default)
namespace coshard {

// Parameters and persistent buffers, by path; a tied parameter once, under its first name, with its
// others beside it. Handles: `load` fills the module itself. Take it after the styles, which replace
// parameters.
State state_dict(Module& module);

// Copies values of another state, of any layout and mesh, into the module's, by name.
//   Moves:   what redistributes the values to the layouts of the module.
//   Fails:   Error{BadInput} names all that does not fit, with nothing changed (LoadOptions).
Task<LoadReport> load_state_dict(Module& module, State values, LoadOptions options = {},
                                 CallSite site = CallSite::current());

// async_save(state_dict(module), …), save(state_dict(module), …) and load(state_dict(module), …). The
// saves also write the module's folder_files(), such as config.json. The load also materializes buffers that do not persist, which no file has.
Task<Saving> async_save(Module& module, std::string folder, SaveOptions options = {},
                        CallSite site = CallSite::current());
Task<void> save(Module& module, std::string folder, SaveOptions options = {},
                CallSite site = CallSite::current());
Task<LoadReport> load(Module& module, std::string path, LoadOptions options = {},
                      CallSite site = CallSite::current());

}  // namespace coshard
#pragma GCC visibility pop
