#include <coshard/styles/state_dict.h>

#include <unordered_map>
#include <utility>

#include <coshard/dtensor/distribute/deferred_init.h>
#include <coshard/styles/materialize.h>
#include "runtime/coro/user_call.h"
#include "styles/load_module.h"

namespace coshard {
namespace {

// What no file has: tables that constructors compute.
void make_tables(Module& module) {
  for (const NamedBuffer& b : module.named_buffers())
    if (!b.persistent) materialize(*b.slot, CallSite());
}

}  // namespace

State state_dict(Module& module) {
  State state;
  std::unordered_map<const void*, std::string> first;
  for (const NamedParameter& p : module.named_slots()) {
    const auto [known, is_new] = first.emplace(p.slot->id(), p.name);
    if (is_new)
      state.add(p.name, *p.slot);
    else
      state.tie(p.name, known->second);
  }
  for (const NamedBuffer& b : module.named_buffers())
    if (b.persistent) state.add(b.name, *b.slot);
  return state;
}

Task<LoadReport> load_state_dict(Module& module, State values, LoadOptions options, CallSite site) {
  Task<LoadReport> copied = copy_state(std::move(values), state_dict(module), options, site);
  LoadReport report = co_await std::move(copied);
  make_tables(module);
  co_return report;
}

Task<Saving> async_save(Module& module, std::string folder, SaveOptions options, CallSite site) {
  const UserCall user(site);
  TrainingFiles beside;
  beside.files = module.folder_files();
  Task<Saving> begun =
      async_save_with(state_dict(module), std::move(folder), options, std::move(beside));
  co_return co_await std::move(begun);
}

Task<void> save(Module& module, std::string folder, SaveOptions options, CallSite site) {
  const UserCall user(site);
  TrainingFiles beside;
  beside.files = module.folder_files();
  Task<void> saved = save_with(state_dict(module), std::move(folder), options, std::move(beside));
  co_await std::move(saved);
}

Task<LoadReport> load_module(Module& module, FilesToLoad from, LoadOptions options) {
  for (const NamedModule& part : module.named_modules())
    for (std::string& end : part.module->unused_names()) from.unused.push_back(std::move(end));
  for (const NamedModule& part : module.named_modules())
    for (const std::string& name : part.module->optional_names())
      from.optional.push_back(part.path.empty() ? name : str_cat(part.path, ".", name));
  const bool fills = !from.only_checks;
  State state = state_dict(module);
  if (const std::string prefix = module.optional_prefix(); !prefix.empty()) {
    std::vector<std::string> names;
    for (const NamedState& entry : state)
      if (entry.name.starts_with(prefix)) names.push_back(entry.name);
    for (const std::string& name : names) state.tie(name.substr(prefix.size()), name);
  }
  Task<LoadReport> loaded = load_files(std::move(state), std::move(from), options);
  LoadReport report = co_await std::move(loaded);
  if (fills) make_tables(module);
  co_return report;
}

Task<LoadReport> load(Module& module, std::string path, LoadOptions options, CallSite site) {
  const UserCall user(site);
  FilesToLoad from;
  from.path = std::move(path);
  Task<LoadReport> loaded = load_module(module, std::move(from), options);
  co_return co_await std::move(loaded);
}

}  // namespace coshard
