#include <coshard/styles/parallelize.h>

#include <algorithm>
#include <map>

#include <coshard/dtensor/distribute/deferred_init.h>
#include "runtime/coro/user_call.h"
#include "runtime/warn.h"
#include "styles/module_change.h"
#include "styles/path_pattern.h"
#include "styles/prepare.h"

namespace coshard {
namespace {

[[noreturn]] void fail_unmatched(Module& root, const std::string& key) {
  for (const NamedParameter& p : root.named_slots()) {
    if (!matches(key, p.name)) continue;
    const std::size_t dot = key.rfind('.');
    fail(ErrorKind::BadInput,
         str_cat("parallelize_module: plan key '", key, "' names a parameter (", p.name,
                 "); styles apply to modules, use '",
                 key.substr(0, dot == std::string::npos ? 0 : dot), "'"));
  }
  std::vector<std::string> names;
  for (const NamedModule& m : root.named_modules())
    if (!m.path.empty()) names.push_back(m.path);
  std::string near;
  for (const std::string& name : nearest(key, std::move(names), 3))
    near += (near.empty() ? "" : ", ") + name;
  fail(ErrorKind::BadInput,
       str_cat("parallelize_module: plan key '", key, "' matches no module; ",
               near.empty() ? "the module has no sub-modules" : "close names: " + near));
}

struct Application {
  NamedModule at;
  const Style* style;
};

std::string_view parent_of(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  return path.substr(0, dot == std::string_view::npos ? 0 : dot);
}

// Warns, on the first rank, of plain parameters of modules that follow one whose output stays a
// plain shard: run on that, they get another gradient on every rank.
void warn_of_plain(Module& root, const DeviceMesh& mesh,
                   const std::vector<Application>& applications) {
  if (!mesh.contains_this_rank() || mesh.local_rank() != 0 || mesh.size() == 1) return;
  const auto styled = [&](std::string_view path) -> const Application* {
    const auto found = std::ranges::find_if(applications, [&](const Application& each) {
      const std::string& at = each.at.path;
      return at.starts_with(path) && (at.size() == path.size() || at[path.size()] == '.');
    });
    return found == applications.end() ? nullptr : &*found;
  };
  std::map<std::string_view, const Application*>
      before;  // in each module, the last one with a style
  const std::vector<NamedModule> modules = root.named_modules();
  for (const NamedModule& m : modules) {
    if (m.path.empty()) continue;
    const Application*& last = before[parent_of(m.path)];
    if (const Application* own = styled(m.path)) {
      last = own->at.path == m.path ? own : nullptr;
      continue;
    }
    if (last == nullptr || !last->style->local_output()) continue;
    for (const NamedParameter& p : m.module->named_parameters())
      if (!p.slot->is_distributed() && p.slot->requires_grad())
        warn_once(str_cat(
            "parallelize_module: '", m.path, '.', p.name, "' stays a plain parameter, but '",
            last->at.path, "' before it leaves plain shards, ", *last->style->local_output(),
            "; if '", m.path, "' runs on them, its gradient is a term on every rank: ",
            "give it a style (SequenceParallel, NoParallel)"));
  }
}

std::vector<Application> resolve(Module& root, const ParallelPlan& plan) {
  std::vector<Application> applications;
  const std::vector<NamedModule> modules = root.named_modules();
  for (const auto& [key, style] : plan) {
    CS_REQUIRE(style, "parallelize_module: plan key '", key, "' has no style");
    const std::size_t before = applications.size();
    for (const NamedModule& m : modules)
      if (matches(key, m.path)) applications.push_back({m, &style});
    if (applications.size() == before) fail_unmatched(root, key);
  }
  return applications;
}

// Returns the error; null if it succeeded.
std::exception_ptr apply_all(const std::vector<Application>& applications, Module& module,
                             const DeviceMesh& mesh, const ParallelizeOptions& options,
                             const ModuleChange& change) {
  try {
    Ties ties(module);
    for (std::size_t i = 0; i < applications.size(); ++i) {
      const Application& each = applications[i];
      each.style->apply(*each.at.module, mesh, options);
      ties.restore();
      // Looks at all parameters: once for all modules of a plan's key.
      if (i + 1 == applications.size() || applications[i + 1].style != each.style)
        change.require_same_shapes(str_cat("parallelize_module: the style ", *each.style));
    }
    change.require_ties_kept("parallelize_module");
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace

Style& ParallelPlan::operator[](std::string key) {
  for (auto& [known, style] : entries_)
    if (known == key) return style;
  return entries_.emplace_back(std::move(key), Style()).second;
}

Task<void> parallelize_module(Module& module, DeviceMesh mesh, ParallelPlan plan,
                              ParallelizeOptions options, CallSite site) {
  const UserCall user(site);
  require_one_dimension(mesh, "parallelize_module");
  CS_REQUIRE(!options.src_data_rank ||
                 (*options.src_data_rank >= 0 && *options.src_data_rank < mesh.size()),
             "parallelize_module: src_data_rank ", options.src_data_rank.value_or(0),
             " is out of range for mesh ", mesh);
  const std::vector<Application> applications = resolve(module, plan);
  ModuleChange change(module);
  std::exception_ptr failure = apply_all(applications, module, mesh, options, change);
  std::vector<Tensor> cut;
  for (const NamedParameter& p : module.named_parameters())
    if (!is_deferred(*p.slot)) cut.push_back(*p.slot);
  try {  // also before undoing: peers send the data, which must arrive
    Task<void> arrived = arrival_of(std::move(cut));
    co_await std::move(arrived);
  } catch (...) {
    if (!failure) failure = std::current_exception();
  }
  if (!failure) {
    static_cast<void>(module.parameters());  // gives them their names, for errors
    warn_of_plain(module, mesh, applications);
    co_return change.keep("parallelize_module");
  }
  change.undo();
  std::rethrow_exception(failure);
}

Task<void> parallelize_module(Module& module, ParallelPlan plan, ParallelizeOptions options,
                              CallSite site) {
  return parallelize_module(module, DefaultMesh::current("parallelize_module"), std::move(plan),
                            options, site);
}

}  // namespace coshard
