#pragma once
// Ranks on a caller's io_context, where nothing else can run while one of them waits in place.
#include <string>
#include <vector>

#include <coshard/runtime/error.h>

namespace coshard {

// Owned by the run, read by its ranks.
struct Neighbours {
  // By world rank: the execution context it is on; null: it is in another process.
  std::vector<const void*> contexts;

  bool together(int a, int b) const {
    return contexts[static_cast<std::size_t>(a)] == contexts[static_cast<std::size_t>(b)];
  }
};

// A wait in place for a rank on the same io_context would never end if one thread runs it. Nothing
// is lost: what was waited for can still be awaited.
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
