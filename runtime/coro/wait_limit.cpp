#include <coshard/runtime/coro/wait_limit.h>

#include <utility>

#include <coshard/runtime/coro/branch.h>
#include <coshard/runtime/error.h>

namespace coshard {
namespace {

const BranchLocal<std::optional<std::int64_t>> limit_here;

}  // namespace

WaitLimit::WaitLimit(std::chrono::nanoseconds limit) : before_(limit_here.get()) {
  CS_REQUIRE(limit.count() >= 0, "WaitLimit: the limit must be at least 0, got ", limit.count(),
             " ns");
  limit_here.own() = limit.count();
}

WaitLimit::~WaitLimit() { limit_here.own() = before_; }

std::optional<std::int64_t> WaitLimit::here() { return limit_here.get(); }

}  // namespace coshard
