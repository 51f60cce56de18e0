#include <coshard/profiling/comm_debug.h>

namespace coshard {
namespace {

template <class Pick>
CommDebug::Counts comm_debug_counts(const CollectiveCounter& counter, std::string_view module,
                                    const Pick& pick) {
  CommDebug::Counts counts;
  for (int k = 0; k <= static_cast<int>(CollectiveKind::Recv); ++k) {
    const auto kind = static_cast<CollectiveKind>(k);
    const std::int64_t n = pick(counter.in_module(module, kind));
    if (n > 0) counts[std::string(to_string(kind))] = n;
  }
  return counts;
}

}  // namespace

CommDebug::Counts CommDebug::counts(std::string_view module) const {
  return comm_debug_counts(counter_, module, [](const auto& c) { return c.total(); });
}

CommDebug::Counts CommDebug::forward_counts(std::string_view module) const {
  return comm_debug_counts(counter_, module, [](const auto& c) { return c.forward; });
}

CommDebug::Counts CommDebug::backward_counts(std::string_view module) const {
  return comm_debug_counts(counter_, module, [](const auto& c) { return c.backward; });
}

}  // namespace coshard
