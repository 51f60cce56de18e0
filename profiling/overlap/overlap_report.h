#pragma once
// How much of the communication in a trace was hidden by compute. A pure function of the trace.
//
// Exposed is the time in which the rank stood still in an await of the part's collectives; hidden,
// the share of the time in flight in which it did not stand still in any. total = computing +
// exposed + idle. A row for a part (a module, a kind of collective) counts that part's time once;
// parts awaited together overlap, so rows need not add up to the total. A module includes its
// submodules.
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "profiling/overlap/trace_file.h"

namespace coshard::overlap {

struct Figures {
  std::int64_t collectives = 0, bytes = 0;
  std::int64_t compute_ns = 0, communication_ns = 0, exposed_ns = 0;
  std::int64_t blocked_ns = 0;  // of communication_ns, stood still in any await
  // nullopt without communication.
  std::optional<double> hidden() const;
};

// For a whole rank; and, given a baseline, the effective communication time (ECT).
struct Whole : Figures {
  std::int64_t total_ns = 0;  // from the first event to the end of the last
  std::int64_t idle_ns = 0, idle_gaps = 0, longest_idle_ns = 0;
  std::optional<std::int64_t> ect_ns;  // total - computing of the baseline
  std::optional<double> efficiency;    // 1 - ECT / ECT of the baseline
};

struct RankOverlap {
  int rank = 0;
  Whole all;
  std::map<std::pair<std::string, std::string>, Figures> kinds;  // {"all_gather", "S(0)->R"}
  std::map<std::string, Figures> modules;                        // "": outside any module
};

// An interval in which the rank stood still throughout.
struct Stretch {
  int rank = 0;
  Interval time;
  std::string collective, module, at;  // of the one that was awaited for most of it
};

struct OverlapReport {
  std::vector<RankOverlap> ranks;
  std::vector<Stretch> longest;              // exposed, the longest first, of all ranks
  std::string link;                          // "20us,1GB/s" if it was emulated
  std::int64_t dropped = 0;                  // events missing from the trace
  std::string why_no_efficiency;             // if a baseline gives none
  std::map<std::string, std::string> about;  // as of RankTrace
};

OverlapReport overlap_of(const std::vector<RankTrace>& trace);

// The mean over the ranks, as rank -1; a part that a rank lacks counts as 0. The longest gap is the
// longest of all ranks. ect_ns and efficiency are set if every rank has them.
RankOverlap mean_of(const OverlapReport& report);

// Sets ect_ns and, if the baseline communicates over the same link, efficiency; else
// why_no_efficiency. The baseline is a trace of the same steps whose kernels are not split: without
// overlap, or without communication. Error{BadInput} if its ranks, steps, modules or run differ.
void add_baseline(OverlapReport& report, const std::vector<RankTrace>& trace,
                  const std::vector<RankTrace>& baseline);

}  // namespace coshard::overlap
