#pragma once
// Finds equal collectives that a rank has issued in another order than the rank that it is compared
// with, rank 0 or its predecessor (announcements.h), called rank 0 below. Their geometry is the
// same, so that only their lines and the origins of their data tell them apart, and these may differ
// between ranks: an error is only what was swapped, and is not known to be the same data. Of one
// group; thread-safe.
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <coshard/runtime/comm/communicator.h>

namespace coshard {

class SwapWatch {
 public:
  // Collective `sequence` of rank 0 and of `rank`, which agree otherwise; `call`: their fingerprint.
  // What has been swapped, for an error message; "": nothing.
  std::string look(std::uint64_t sequence, std::uint64_t call, int rank, const Collective& first,
                   const Collective& its) {
    const bool known = first.origin != 0 && its.origin != 0;
    if (known && first.origin == its.origin) return {};
    const bool same_line = first.where.file == its.where.file && first.where.line == its.where.line;
    return same_line && !known ? std::string() : look_at(sequence, call, rank, first, its);
  }

 private:
  static constexpr std::uint64_t kWindow = 64;  // collectives
  struct Call {
    explicit Call(const Collective& c) : where(c.where), origin(c.origin) {}
    CallSite where;
    std::uint64_t origin;
  };
  struct Difference {
    std::uint64_t sequence, call;
    Call first, its;
  };
  std::string look_at(std::uint64_t sequence, std::uint64_t call, int rank, const Collective& first,
                      const Collective& its);

  std::mutex mutex_;
  std::vector<std::deque<Difference>> by_rank_;
};

}  // namespace coshard
