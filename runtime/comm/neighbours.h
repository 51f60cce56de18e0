#pragma once
// Ranks that live on a caller's io_context, where nobody else of it runs while one waits in place.
#include <string>
#include <vector>

#include <coshard/runtime/error.h>

namespace coshard {

// Owned by the run, read by its ranks.
struct Neighbours {
  std::vector<const void*> contexts;  // by world rank: the execution context that it lives on

  bool together(int a, int b) const {
    return contexts[static_cast<std::size_t>(a)] == contexts[static_cast<std::size_t>(b)];
  }
};

// A wait in place for a rank of the same io_context: it would be for ever where one thread runs
// that. Nothing is lost: what was waited for may still be awaited.
class MissingIsHere : public Error {
 public:
  MissingIsHere(const std::string& awaited, int rank)
      : Error(ErrorKind::BadInput,
              cat(awaited, " is waited for in place and ", reason(rank), "; co_await it instead")),
        rank_(rank) {}
  std::string reason() const { return reason(rank_); }

 private:
  static std::string reason(int rank) {
    return cat("rank ", rank, ", which it waits for, runs on the same io_context");
  }
  int rank_;
};

}  // namespace coshard
