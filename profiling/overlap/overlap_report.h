#pragma once
// How much of the communication in a trace ran under compute. A pure function of the trace.
//
// Exposed is the time in which a collective was in flight and no kernel ran on that rank, whosever
// kernel; so total = computing + exposed + idle. A row of a part (a module, a kind of collective)
// counts the time of that part once; parts that are in flight together overlap, so rows need not
// add up to the total. A module includes its submodules.
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
  // Share of the communication that ran under compute; none without communication.
  std::optional<double> hidden() const;
};

// Of the whole rank; and, given a baseline, the effective communication time.
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
  std::map<std::string, Figures> modules;                        // "": issued outside of any
};

// A time in which communication was exposed throughout.
struct Stretch {
  int rank = 0;
  Interval time;
  std::string collective, module, at;  // of what took most of it
};

struct OverlapReport {
  std::vector<RankOverlap> ranks;
  std::vector<Stretch> longest;              // exposed, the longest first, of all ranks
  std::string link;                          // "20us,1GB/s" where it was emulated
  std::int64_t dropped = 0;                  // events that the trace lacks
  std::string why_no_efficiency;             // where a baseline gives none
  std::map<std::string, std::string> about;  // as of RankTrace
};

OverlapReport overlap_of(const std::vector<RankTrace>& trace);

// The mean over the ranks, as a rank -1; a part that a rank lacks counts as 0 there. The longest gap
// is that of all ranks. ect_ns and efficiency are there if every rank has them.
RankOverlap mean_of(const OverlapReport& report);

// Fills in ect_ns, and efficiency where the baseline communicates over the same link; else why not.
// The baseline is a trace of the same steps whose kernels are whole: without overlap, or without
// communication. Error{BadInput} where it is of other ranks, steps or modules, or about another run.
void add_baseline(OverlapReport& report, const std::vector<RankTrace>& trace,
                  const std::vector<RankTrace>& baseline);

}  // namespace coshard::overlap
