#pragma once
// Ranks on a caller's io_context, where nothing else can run during a blocking wait of one of them.
#include <string>
#include <vector>

#include <coshard/runtime/error.h>

namespace coshard {

// Owned by the run, read by its ranks.
struct Neighbours {
  // By world rank: its execution context; null: in another process.
  std::vector<const void*> contexts;

  bool together(int a, int b) const {
    return contexts[static_cast<std::size_t>(a)] == contexts[static_cast<std::size_t>(b)];
  }
};

// Thrown by a blocking wait for a rank on the same io_context, which would never end if a single
// thread runs it. The work remains valid and can still be awaited.
class MissingIsHere : public Error {
 public:
  MissingIsHere(const std::string& awaited, int rank)
      : Error(ErrorKind::BadInput, str_cat(awaited, " is waited for in place, but ", reason(rank),
                                           "; co_await it instead")),
        rank_(rank) {}
  std::string reason() const { return reason(rank_); }

 private:
  static std::string reason(int rank) {
    return str_cat("rank ", rank, ", whose part is missing, runs on the same io_context");
  }
  int rank_;
};

}  // namespace coshard
