#pragma once
// The cost of communication, by kind and purpose: count, bytes, GB/s, the time exposed and the
// share hidden; and the time of compute, by class. Exposed is the time in which the rank stood
// still for a collective: its host in an await, or on a device that queues its work, its compute
// stream, by the device's clock. An observer of one rank, used on its thread; tables of several
// ranks are merged after they have ended.
//
// Times are those of the rank's clock: where collectives are in flight, or awaited, at the same
// time, a row counts the shared time once, and so does the total over rows, which may be less than
// their sum.
#include <array>
#include <cstdint>
#include <map>
#include <ostream>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include <coshard/profiling/time_set.h>
#include <coshard/runtime/observer.h>

#pragma GCC visibility push(default)
namespace coshard {

class CommSummary : public Observer {
 public:
  struct Row {
    CollectiveKind kind{};
    std::string label;
    std::int64_t count = 0, bytes = 0;  // issued, while this was an observer
    // The time during which at least one was in flight, from issue (on a stream: from its begin
    // there) until its data were complete; only those that were awaited count.
    std::int64_t in_flight_ns = 0;
    // Stood still in an await, no coroutine of the rank running: also while the host helped, and if
    // the await was given up or failed.
    std::int64_t exposed_ns = 0;
    std::int64_t blocked_ns = 0;     // of in_flight_ns, stood still in any await
    double hidden() const;           // share of in_flight_ns in which it did not, in [0, 1]
    double gigabytes_per_s() const;  // from `bytes`: of each collective's larger buffer
  };

  std::vector<Row> rows() const;  // most exposed first
  // "20us,1GB/s" if the times are of an emulated link; else empty.
  const std::string& link() const { return link_; }
  Row total() const { return total_.row; }
  double hidden_share() const { return total().hidden(); }
  std::int64_t compute_ns(ComputeClass what) const {
    return compute_ns_[static_cast<std::size_t>(what)];
  }
  // Share of `wall_ns` that this rank's host spent in GEMM and attention kernels; on a device that
  // queues its work, in queueing them.
  double gemm_share(std::int64_t wall_ns) const;
  void merge(const CommSummary& other);
  // Collectives in flight stay known: they will count whole, from their issue, but for what was
  // exposed before.
  void reset();

  void issued(const CommEvent& event, std::int64_t now) override;
  void ready(const CommEvent& event, std::int64_t wait_begin, std::int64_t done,
             std::int64_t now) override;
  void computed(std::string_view op, ComputeClass what, std::int64_t begin,
                std::int64_t end) override;
  void ran(const CommEvent& event, std::int64_t begin, std::int64_t end) override;
  void stalled(const CommEvent& event, std::int64_t begin, std::int64_t end) override;

 private:
  friend struct ObserverJson;
  using Key = std::pair<CollectiveKind, std::string>;
  struct Counted {
    Row row;
    TimeSet in_flight, exposed, blocked;
  };
  Counted& of(const CommEvent& event);
  void add_exposed(const CommEvent& event, const TimeSet::Interval& time);
  void add_in_flight(const CommEvent& event, const TimeSet::Interval& time);
  void forget(Counted& counted) const;

  std::map<Key, Counted> rows_;
  Counted total_{{CollectiveKind{}, "total"}, {}, {}, {}};
  std::string link_;
  std::unordered_map<std::uint64_t, std::int64_t> issued_at_;
  std::array<std::int64_t, 3> compute_ns_{};
};

// Prints the table; figures are means over `tables`, one per rank. Says if a link was emulated.
void print_comm_summary(std::ostream& out, std::span<const CommSummary> tables);

}  // namespace coshard
#pragma GCC visibility pop
