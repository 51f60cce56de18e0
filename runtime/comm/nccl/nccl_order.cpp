#include "runtime/comm/nccl/nccl_order.h"

#include <cstdlib>
#include <fstream>
#include <utility>

#include <coshard/runtime/error.h>
#include "runtime/comm/nccl/nccl_api.h"
#include "runtime/device/cuda/describe.h"

namespace coshard {
namespace {

constexpr const char* kOrderVariable = "NCCL_LAUNCH_ORDER_IMPLICIT";
// CUDA drivers whose kernels tell when they have begun, and within graphs; NCCL serialises the
// operations with older ones (getImplicitOrder, enqueue.cc).
constexpr int kLaunchEvents = 12030, kLaunchEventsInGraphs = 12090;

}  // namespace

NcclOrder nccl_order_of(const NcclOrderFacts& facts) {
  const auto events = [](std::string why) { return NcclOrder{false, false, std::move(why)}; };
  if (facts.now.empty()) return events(str_cat(kOrderVariable, " not set"));
  if (facts.now != "1") return events(str_cat(kOrderVariable, "=", facts.now));
  if (facts.at_start != "1")
    return events(str_cat(kOrderVariable, " was set after the process began"));
  if (facts.plugin) return events("NCCL reads its variables through a plugin (NCCL_ENV_PLUGIN)");
  if (facts.library < static_cast<int>(NcclFeature::ImplicitOrder))
    return events(str_cat("NCCL ", nccl_version_text(facts.library), " does not keep an order"));
  if (facts.driver < kLaunchEvents) return events("the CUDA driver is older than 12.3");
  if (facts.without_kernels) return events("the copy engine's collectives are not ordered by NCCL");
  return {true, facts.driver >= kLaunchEventsInGraphs, str_cat(kOrderVariable, "=1")};
}

NcclOrder nccl_order(bool without_kernels) {
  NcclOrderFacts facts;
  facts.at_start = variable_at_start(kOrderVariable);
  if (const char* now = std::getenv(kOrderVariable)) facts.now = now;
  const char* plugin = std::getenv("NCCL_ENV_PLUGIN");
  facts.plugin = plugin != nullptr && *plugin != '\0';
  facts.library = nccl_version();
  if (facts.now == "1") facts.driver = cuda_presence().driver;
  facts.without_kernels = without_kernels;
  return nccl_order_of(facts);
}

std::string to_string(const NcclOrder& order) {
  return str_cat("ordered by ", order.by_nccl ? "NCCL" : "events", " (", order.reason, ")");
}

// /proc holds what the kernel gave the process, whatever setenv() has done since.
std::string variable_at_start(const std::string& name) {
  std::ifstream environment("/proc/self/environ", std::ios::binary);
  const std::string begin = name + "=";
  for (std::string one; std::getline(environment, one, '\0');)
    if (one.starts_with(begin)) return one.substr(begin.size());
  return "";
}

}  // namespace coshard
