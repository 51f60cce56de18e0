#pragma once
// Reads traces written by write_chrome_trace.
#include <map>
#include <span>
#include <string>
#include <vector>

#include <coshard/profiling/time_set.h>

namespace coshard::overlap {

using Interval = TimeSet::Interval;

struct TraceEvent {
  enum class Kind : std::uint8_t { Kernel, Collective, Await, Module, Range };
  Kind kind{};
  // Of a collective, from its issue; of an await, what the host or the compute stream stood still.
  Interval time;
  std::string name;  // "matmul", "all_gather S(0)->R": also of its awaits
  std::string module, communicator, at;
  std::int64_t bytes = 0;
  std::int64_t queued_ns = 0;  // from its issue to where its span begins in the file
};

struct RankTrace {
  int rank = 0;
  std::string link;          // "20us,1GB/s" if it was emulated
  std::int64_t dropped = 0;  // events missing from the file
  std::vector<TraceEvent> events;
  std::map<std::string, std::string> about;  // what the writer noted about the run, except its link
};

// The ranks of a file, in ascending order, each with events. Error{BadInput}: one line that names
// the file.
std::vector<RankTrace> read_trace(const std::string& file);

// Of all events of a kind.
TimeSet times_of(const RankTrace& rank, TraceEvent::Kind kind);

// From the first event of all ranks to the end of the last; {0, 0} without events.
Interval span_of(std::span<const RankTrace> trace);

}  // namespace coshard::overlap
