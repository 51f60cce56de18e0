#include <coshard/runtime/observer.h>

#include <chrono>
#include <utility>

#include <coshard/runtime/coro/rank_context.h>
#include <coshard/runtime/device/device.h>
#include "runtime/device/stream_times.h"

namespace coshard {

std::string_view to_string(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::AllReduce: return "all_reduce";
    case CollectiveKind::AllGather: return "all_gather";
    case CollectiveKind::ReduceScatter: return "reduce_scatter";
    case CollectiveKind::AllToAll: return "all_to_all";
    case CollectiveKind::Broadcast: return "broadcast";
    case CollectiveKind::Scatter: return "scatter";
    case CollectiveKind::Barrier: return "barrier";
    case CollectiveKind::Send: return "send";
    case CollectiveKind::Recv: return "recv";
  }
  return "?";
}

std::int64_t now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

std::int64_t rank_now_ns() { return RankContext::current().parker().now(); }

Computing::Computing(Observer& observer, Device& device, std::string_view op, ComputeClass what,
                     const DescribeInputs& inputs)
    : observer_(observer), device_(device), op_(op), what_(what) {
  if (device_.queues() && observer_.times_kernels())
    from_ = device_.compute_stream().record_timed();
  observer_.computing(op_, what_, inputs);
  begin_ = rank_now_ns();
}

// A device that fails here reports it at its next call.
Computing::~Computing() {
  observer_.computed(op_, what_, begin_, rank_now_ns());
  if (from_ == nullptr) return;
  try {
    device_.times().kernel(std::move(from_), device_.compute_stream().record_timed());
  } catch (const std::exception&) {
  }
}

}  // namespace coshard
