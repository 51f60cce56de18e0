#include "runtime/device/graph.h"

#include <coshard/runtime/coro/rank_context.h>
#include <coshard/runtime/error.h>
#include "runtime/device/allocation_label.h"

namespace coshard {
namespace {

// What the rank is working for: " for matmul in module layers.0 at train.cpp:88".
std::string purpose() {
  const CallLocation& place = Branch::current().place;
  std::string_view operation = place.operation;
  if (operation.empty()) operation = AllocationLabel::current();
  std::string text;
  if (!operation.empty()) text += str_cat(" for ", operation);
  if (!place.module.empty()) text += str_cat(" in module ", place.module);
  if (place.site.known()) text += str_cat(" at ", place.site.file, ":", place.site.line);
  return text;
}

}  // namespace

GraphDevice* graph_device(Device& device) { return dynamic_cast<GraphDevice*>(&device); }

void require_not_recording(Device& device, std::string_view who, std::string_view what) {
  const GraphDevice* graphs = graph_device(device);
  if (graphs == nullptr || !graphs->recording()) return;
  fail(ErrorKind::Unsupported,
       str_cat(who, ": cannot ", what, " within a captured step on ", device.name(), purpose()));
}

}  // namespace coshard
