#pragma once
// A limit for some waits, where a peer may rightly be busy for longer than the world's timeout.
//
//   {
//     const WaitLimit limit(std::chrono::minutes(10));
//     if (world.rank() == 0) evaluate(model);
//     co_await issue_barrier(...);  // the others wait for up to ten minutes
//   }
#include <chrono>
#include <cstdint>
#include <optional>

#pragma GCC visibility push(default)
namespace coshard {

// While it lives, what its branch issues or awaits may take `limit` instead of
// WorldOptions::timeout; 0: for ever. The innermost one counts; children of a when_all begin with
// their parent's. A wait counts from when its rank waits for it first: while it stands behind the
// wait of another branch (executor.h), that one's limit holds. It limits the waits of this rank
// alone, so hold it on all ranks that may wait, in whichever process: each rank's own limit decides
// when it gives up. It lasts across co_await.
// Error{BadInput}: a negative limit.
class [[nodiscard]] WaitLimit {
 public:
  explicit WaitLimit(std::chrono::nanoseconds limit);
  ~WaitLimit();
  WaitLimit(const WaitLimit&) = delete;
  WaitLimit& operator=(const WaitLimit&) = delete;

  // The limit that holds here, in nanoseconds (0: none); nullopt: that of the world.
  static std::optional<std::int64_t> here();

 private:
  std::optional<std::int64_t> before_;
};

}  // namespace coshard
#pragma GCC visibility pop
