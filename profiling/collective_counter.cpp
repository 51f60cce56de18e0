#include <coshard/profiling/collective_counter.h>

#include <fmt/format.h>

#include <algorithm>

#include "profiling/json.h"

namespace coshard {
namespace {

bool lies_in(std::string_view path, std::string_view module) {
  if (module.empty() || path == module) return true;
  return path.size() > module.size() && path.substr(0, module.size()) == module &&
         path[module.size()] == '.';
}

void add_to(CollectiveCounter::Count& sum, const CollectiveCounter::Count& part) {
  sum.forward += part.forward;
  sum.backward += part.backward;
  sum.bytes += part.bytes;
}

}  // namespace

void CollectiveCounter::issued(const CommEvent& event, std::int64_t) {
  const bool backward = backward_depth_ > 0;
  const std::string module = modules_.empty() ? std::string() : modules_.back();
  Count& count = counts_[module][static_cast<std::size_t>(event.kind)];
  ++(backward ? count.backward : count.forward);
  count.bytes += event.bytes;
}

// Siblings of a when_all may exit in another order than they entered.
void CollectiveCounter::module_exit(std::string_view path) {
  const auto last = std::find(modules_.rbegin(), modules_.rend(), path);
  if (last != modules_.rend()) modules_.erase(std::next(last).base());
}

std::int64_t CollectiveCounter::total() const {
  std::int64_t sum = 0;
  for (const auto& [path, counts] : counts_)
    for (const Count& count : counts) sum += count.total();
  return sum;
}

CollectiveCounter::Count CollectiveCounter::count(CollectiveKind kind) const {
  return in_module("", kind);
}

CollectiveCounter::Count CollectiveCounter::in_module(std::string_view path,
                                                      CollectiveKind kind) const {
  Count sum;
  for (const auto& [module, counts] : counts_)
    if (lies_in(module, path)) add_to(sum, counts[static_cast<std::size_t>(kind)]);
  return sum;
}

std::vector<std::string> CollectiveCounter::modules() const {
  std::vector<std::string> paths;
  for (const auto& [path, counts] : counts_) paths.push_back(path);
  return paths;
}

namespace {

Json json_of(const CollectiveCounter& counter, std::string_view module) {
  Json kinds = Json::object();
  for (int k = 0; k <= static_cast<int>(CollectiveKind::Recv); ++k) {
    const auto kind = static_cast<CollectiveKind>(k);
    const CollectiveCounter::Count count = counter.in_module(module, kind);
    if (count.total() > 0)
      kinds[std::string(to_string(kind))] = {
          {"forward", count.forward}, {"backward", count.backward}, {"bytes", count.bytes}};
  }
  return kinds;
}

}  // namespace

std::string to_json(const CollectiveCounter& counter) {
  Json modules = Json::object();
  for (const std::string& path : counter.modules())
    if (!path.empty()) modules[path] = json_of(counter, path);
  return json_text({{"all", json_of(counter, "")}, {"modules", std::move(modules)}});
}

std::ostream& operator<<(std::ostream& out, const CollectiveCounter& counter) {
  out << fmt::format("{:<28} {:<15} {:>8} {:>9} {:>14}\n", "module", "collective", "forward",
                     "backward", "bytes");
  const auto line = [&out](std::string_view path, CollectiveKind kind,
                           const CollectiveCounter::Count& count) {
    if (count.total() > 0)
      out << fmt::format("{:<28} {:<15} {:>8} {:>9} {:>14}\n", path, to_string(kind), count.forward,
                         count.backward, count.bytes);
  };
  for (const std::string& path : counter.modules()) {
    if (path.empty()) continue;
    for (int k = 0; k <= static_cast<int>(CollectiveKind::Recv); ++k)
      line(path, static_cast<CollectiveKind>(k),
           counter.in_module(path, static_cast<CollectiveKind>(k)));
  }
  for (int k = 0; k <= static_cast<int>(CollectiveKind::Recv); ++k)
    line("all", static_cast<CollectiveKind>(k), counter.count(static_cast<CollectiveKind>(k)));
  return out;
}

}  // namespace coshard
