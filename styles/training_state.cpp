#include <coshard/styles/training_state.h>

#include <utility>

#include "runtime/coro/user_call.h"
#include "styles/training_parts.h"

namespace coshard {
namespace {
constexpr const char* kOptimizer = "optimizer";
}

Task<void> save(Module& module, Optimizer& optimizer, std::string folder, SaveOptions options,
                CallSite site) {
  const UserCall user(site);
  TrainingParts parts(module);
  parts.add(kOptimizer, optimizer);
  Task<void> saved = parts.save(std::move(folder), options);
  co_await std::move(saved);
}

Task<LoadReport> load(Module& module, Optimizer& optimizer, std::string folder, LoadOptions options,
                      CallSite site) {
  const UserCall user(site);
  TrainingParts parts(module);
  parts.add(kOptimizer, optimizer);
  Task<LoadReport> loaded = parts.load(std::move(folder), options, false);
  co_return co_await std::move(loaded);
}

}  // namespace coshard
