#pragma once
// How ranks in several processes compare collectives whose data go another way
// (Collective::control_only). The ranks of a group form a ring: those of a process after one another,
// the processes in the order of their first ranks. Each rank announces each collective to its
// successor, which compares it with its own; being equal is transitive, so this compares all, at one
// message per process and collective.
//
// What only a failure needs costs more. A rank that finds a difference ends the run on all ranks with
// an error that names both; of two launches of graphs it first asks its predecessor for the first
// collective that differs, for at most half a second. A rank whose wait comes near its deadline asks
// all others how many they have issued, where, and what the awaited one is; those that have not
// issued it answer again when they have. At the deadline, those that have not, or do not answer, are
// missing.
//
// Two things are not transitive. Counts of a flat all_to_all match in pairs: they are told to all
// ranks. And what a rank may lack (replicas, the order of a bucket, the module, the origin) is not
// compared across a neighbour that lacks it.
//
// A rank is at most kMostUnacknowledged collectives ahead of its successor, which acknowledges every
// kPerAcknowledgement, and kKept ahead of its predecessor: the last kKept are what it can still
// compare and answer for. A rank that must not get further ahead waits when it issues (a wait like
// others). Owned by the group; thread-safe.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/comm/local/announcement.h"
#include "runtime/comm/local/host/collective_op.h"

namespace coshard {

class LocalGroup;

class Announcements {
 public:
  static constexpr std::uint64_t kKept = 1024, kMostUnacknowledged = 256;
  static constexpr std::uint64_t kPerAcknowledgement = 128;
  // How long before a deadline the others are asked, of which answers may take a half, but in any
  // case 20 ms: they are given by watchdogs, which look every 10 ms.
  static constexpr std::int64_t ask_before_ns(std::int64_t timeout_ns) {
    return std::min<std::int64_t>(timeout_ns / 4, 1'000'000'000);
  }
  static constexpr std::int64_t patience_ns(std::int64_t timeout_ns) {
    return std::max<std::int64_t>(ask_before_ns(timeout_ns) / 2, 20'000'000);
  }

  explicit Announcements(LocalGroup& group);

  // The next collective of `rank`, which is here.
  void issue(int rank, Collective&& args, Print print);
  // The collective that others have to issue before `rank` may issue its next one; none: it may now.
  std::optional<std::uint64_t> awaited(int rank) const;
  // What `rank` has issued as number `number`, of the last kKept.
  Collective issued(int rank, std::uint64_t number) const;
  // Whether the predecessor of `rank` has issued its collective `number`, which is equal.
  bool is_compared(int rank, std::uint64_t number) const;
  // Whether `rank` has issued its collective `number`, as far as is known here.
  bool has_issued(int rank, std::uint64_t number) const;
  // A rank that has left without issuing what `rank` waits for, or, if that waits for room, without
  // acknowledging it; -1: not known of any.
  int lost(int rank, std::uint64_t number, bool for_room) const;

  // `rank` asks all that may not have issued `number`. Returns when.
  std::int64_t ask(int rank, std::uint64_t number);
  // Whether ranks have not issued `number`, and have had time to answer.
  bool misses_any(std::uint64_t number, std::int64_t asked_ns, std::int64_t patience_ns) const;
  // "arrived: 0,2; missing: 1 (last issued #39 all_reduce on tp[4] 1.7 s ago) at train.cpp:88"
  std::string missing_text(std::uint64_t number) const;

  // Now and then, by whoever waits: hears what others say though nothing is in flight here.
  void look();
  // From another process; `to` is here.
  void heard(Announcement said);

 private:
  struct Side {
    Collective args;
    Print print;
  };
  struct Difference {
    std::string text;
    std::uint64_t number = 0;
    std::int64_t since_ns = 0;
  };
  struct Own {  // a rank that is here
    int before = 0, after = 0;
    std::uint64_t issued = 0;
    std::deque<Side> kept;        // the last of them
    std::deque<Announced> ahead;  // of its predecessor, which it has not issued yet
    std::uint64_t compared = 0;   // with its predecessor
    std::uint64_t acknowledged = 0;
    std::int64_t issued_ns = 0;
    std::vector<Asked> asked;              // about what it has not issued yet
    std::optional<Difference> difference;  // between launches; not told yet
  };
  struct Known {
    std::uint64_t issued = 0;
    std::int64_t answered_ns = 0;
    std::string place;  // of the last one
  };
  // What is to be said and done without the lock.
  struct Outcome {
    std::vector<Announcement> said;
    std::string difference;
  };

  Own& own(int rank) { return *own_[static_cast<std::size_t>(rank)]; }
  const Own& own(int rank) const { return *own_[static_cast<std::size_t>(rank)]; }
  Known& known(int rank) { return known_[static_cast<std::size_t>(rank)]; }
  const Known& known(int rank) const { return known_[static_cast<std::size_t>(rank)]; }
  const Side* kept(int rank, std::uint64_t number) const;
  Side* kept(int rank, std::uint64_t number) {
    return const_cast<Side*>(std::as_const(*this).kept(rank, number));
  }
  void note_issue(int rank, CollectiveKind kind, std::uint64_t count, std::int64_t at_ns);
  std::string difference(std::uint64_t number, int a, Side& one, int b, Side& other);
  void compare(int rank, Outcome& outcome);
  void differ(int rank, std::string text, const Side& mine, const Announced& theirs,
              Outcome& outcome);
  void tell_counts(int rank, std::uint64_t number, const Collective& args, Print print,
                   Outcome& outcome);
  void act(const Outcome& outcome);
  void take(Announced& said, Outcome& outcome);
  void take(const Acknowledged& said, Outcome& outcome);
  void take(const Asked& said, Outcome& outcome);
  void take(Answered& said, Outcome& outcome);

  LocalGroup& group_;
  mutable std::mutex mutex_;                // all below
  std::vector<std::optional<Own>> own_;     // by rank; none: elsewhere
  std::vector<Known> known_;                // by rank
  std::unique_ptr<CollectiveOp> compared_;  // holds two sides for the Agreement
  std::int64_t looked_ns_ = 0;
};

}  // namespace coshard
