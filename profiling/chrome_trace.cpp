#include <coshard/profiling/chrome_trace.h>

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include <coshard/profiling/time_set.h>
#include <coshard/runtime/coro/branch.h>
#include <coshard/runtime/launch/world.h>
#include "profiling/json.h"
#include "profiling/rank_clock.h"
#include "runtime/comm/collective.h"

namespace coshard {
namespace {

using Span = ChromeTrace::Span;
using Track = ChromeTrace::Track;

std::string title(const CommEvent& event) {
  std::string name(to_string(event.kind));
  if (!event.label.empty()) name += " " + std::string(event.label);
  return name;
}

constexpr std::int64_t kShortest = 100;  // ns; a span of no length could not hold an arrow

// How a span is drawn otherwise than it was: how long before it its collective was issued, and how
// long an await took (-1: as drawn).
struct Undrawn {
  std::int64_t queued = 0, waited = -1;
};

// Outer spans first.
bool before(const Span& a, const Span& b) {
  return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
}

// The module that runs on this rank's branch.
std::string module_at_work() {
  const World* world = World::current();
  const auto path = world ? world->module() : nullptr;
  if (!path) return "";
  return path->empty() ? "model" : *path;
}

// Siblings of a when_all may overlap without nesting: the later one is cut off at the end of the
// earlier.
void clip_to_nest(std::vector<Span>& spans) {
  std::vector<std::int64_t> ends;
  for (Span& span : spans) {
    while (!ends.empty() && ends.back() <= span.begin) ends.pop_back();
    if (!ends.empty()) span.end = std::min(span.end, ends.back());
    ends.push_back(span.end);
  }
}

std::string_view kernel_kind(ComputeClass what) {
  switch (what) {
    case ComputeClass::Gemm: return "gemm";
    case ComputeClass::Attention: return "attention";
    case ComputeClass::Other: break;
  }
  return "other";
}

// All but the last piece of an await have no arrow.
bool is_of_collective(const Span& span) { return span.flow != 0 || !span.communicator.empty(); }

// Spans in order; each short await gets a span that holds its arrow and cuts no later one.
void widen_awaits(std::vector<Span>& spans) {
  std::int64_t next = std::numeric_limits<std::int64_t>::max();
  for (std::size_t i = spans.size(); i-- > 0;) {
    Span& span = spans[i];
    if (i + 1 < spans.size() && spans[i + 1].begin > span.begin) next = spans[i + 1].begin;
    if (is_of_collective(span))
      span.end = std::max(span.end, std::min(span.begin + kShortest, next));
  }
}

std::string_view category(const Span& span) {
  if (span.track == Track::Communication) return "collective";
  if (is_of_collective(span)) return "await";
  if (span.track == Track::Compute) return "kernel";
  return span.module.empty() ? "range" : "module";
}

double micros(std::int64_t ns) { return static_cast<double>(ns) / 1000; }

// The details that a selected span shows.
Json arguments(const Span& span, const Undrawn& undrawn) {
  Json args;
  const auto add = [&args](const char* name, const std::string& text) {
    if (!text.empty()) args[name] = text;
  };
  if (is_of_collective(span)) {
    args = {{"bytes", span.bytes}, {"sequence", span.sequence}};
    add("communicator", span.communicator);
    if (span.where.known()) args["at"] = location_of(span.where);
    add("module", span.module);
    if (undrawn.queued > 0) args["queued_us"] = micros(undrawn.queued);
    if (undrawn.waited >= 0) args["waited_us"] = micros(undrawn.waited);
  } else if (span.track == Track::Compute) {
    args = {{"kind", kernel_kind(span.what)}};
    add("inputs", span.inputs);
    add("module", span.module);
  }
  return args;
}

// A time at which a collective begins or ends, and how the bytes in flight change there.
struct Edge {
  std::int64_t at = 0, bytes = 0;
};

// In order of time.
std::vector<Edge> edges_of(const ChromeTrace& rank) {
  std::vector<Edge> edges;
  for (const Span& span : rank.spans()) {
    if (span.track != Track::Communication) continue;
    edges.push_back({span.begin, span.bytes});
    edges.push_back({span.end, -span.bytes});
  }
  std::ranges::sort(edges, {}, &Edge::at);
  return edges;
}

TimeSet exposed_of(const ChromeTrace& rank) {
  std::vector<TimeSet::Interval> awaits;
  for (const Span& span : rank.spans())
    if (span.track != Track::Communication && is_of_collective(span))
      awaits.push_back({span.begin, span.end});
  return TimeSet(std::move(awaits));
}

class Writer {
 public:
  Writer(std::ostream& out, std::int64_t origin) : out_(out), origin_(origin) {}

  // The tracks of collectives show `link`, if any.
  void rank(int pid, const ChromeTrace& rank, const std::string& link) {
    counters(pid, edges_of(rank), exposed_of(rank));
    about("process_name", pid, 0, {{"name", fmt::format("rank {}", pid)}});
    if (rank.dropped() > 0)
      about("process_labels", pid, 0,
            {{"labels", fmt::format("{} events dropped", rank.dropped())}});
    track(pid, 0, "host", of_track(rank, Track::Host));
    track(pid, 1, "compute", of_track(rank, Track::Compute));
    const std::vector<Span> collectives = of_track(rank, Track::Communication);
    std::vector<std::string> communicators;
    for (const Span& span : collectives)
      if (std::ranges::find(communicators, span.communicator) == communicators.end())
        communicators.push_back(span.communicator);
    const std::string suffix = link.empty() ? "" : ", emulated link " + link;
    if (communicators.size() < 2)
      return communication(pid, 2, "communication" + suffix, collectives);
    for (int tid = 2; const std::string& name : communicators) {
      std::vector<Span> own;
      std::ranges::copy_if(collectives, std::back_inserter(own),
                           [&](const Span& span) { return span.communicator == name; });
      communication(pid, tid++, "communication " + name + suffix, std::move(own));
    }
  }

 private:
  // One value per change, so that they cost less than the spans.
  void counters(int pid, const std::vector<Edge>& edges, const TimeSet& exposed) {
    constexpr const char *kBytes = "bytes in flight", *kExposed = "exposed communication so far";
    if (edges.empty()) return;
    std::int64_t bytes = 0, shown = 0, sum = 0;
    for (std::size_t i = 0; i < edges.size();) {
      const std::int64_t at = edges[i].at;
      for (; i < edges.size() && edges[i].at == at; ++i) bytes += edges[i].bytes;
      if (std::exchange(shown, bytes) != bytes) counter(kBytes, pid, at, {{"bytes", bytes}});
    }
    counter(kExposed, pid, edges.front().at, {{"ms", 0.0}});
    for (const TimeSet::Interval& one : exposed.intervals()) {
      sum += one.length();
      counter(kExposed, pid, one.end, {{"ms", static_cast<double>(sum) / 1e6}});
    }
  }
  void counter(const char* name, int pid, std::int64_t at, Json value) {
    line({{"ph", "C"},
          {"name", name},
          {"pid", pid},
          {"ts", micros(at - origin_)},
          {"args", std::move(value)}});
  }
  static std::vector<Span> of_track(const ChromeTrace& rank, Track track) {
    std::vector<Span> spans;
    std::ranges::copy_if(rank.spans(), std::back_inserter(spans),
                         [track](const Span& span) { return span.track == track; });
    return spans;
  }
  void about_track(int pid, int tid, const std::string& name) {
    about("thread_name", pid, tid, {{"name", name}});
    about("thread_sort_index", pid, tid, {{"sort_index", tid}});
  }
  void track(int pid, int tid, const std::string& name, std::vector<Span> spans) {
    about_track(pid, tid, name);
    std::stable_sort(spans.begin(), spans.end(), before);
    std::vector<std::int64_t> took;
    for (const Span& one : spans) took.push_back(one.end - one.begin);
    widen_awaits(spans);
    clip_to_nest(spans);
    for (std::size_t i = 0; i < spans.size(); ++i) {
      const Span& one = spans[i];
      const bool as_drawn = !is_of_collective(one) || one.end - one.begin == took[i];
      span(pid, tid, one, {.waited = as_drawn ? -1 : took[i]});
    }
  }
  // In order of completion: each is drawn from its issue, or from the completion of the one before.
  void communication(int pid, int tid, const std::string& name, std::vector<Span> spans) {
    about_track(pid, tid, name);
    std::ranges::stable_sort(spans, {},
                             [](const Span& one) { return std::pair(one.end, one.sequence); });
    for (std::size_t i = spans.size(); i-- > 1;)  // of several at once, each gets a ns
      spans[i - 1].end = std::min(spans[i - 1].end, spans[i].end - 1);
    std::int64_t free_at = origin_;
    for (Span& one : spans) {
      const std::int64_t issued = one.begin;
      one.begin = std::min(std::max(issued, free_at), one.end - 1);
      free_at = one.end;
      span(pid, tid, one, {.queued = one.begin - issued});
    }
  }
  void about(std::string_view what, int pid, int tid, Json args) {
    line({{"ph", "M"}, {"name", what}, {"pid", pid}, {"tid", tid}, {"args", std::move(args)}});
  }
  void span(int pid, int tid, const Span& span, const Undrawn& undrawn) {
    Json event{{"ph", "X"}, {"name", span.name}, {"cat", category(span)}};
    event["pid"] = pid;
    event["tid"] = tid;
    event["ts"] = micros(span.begin - origin_);
    event["dur"] = micros(span.end - span.begin);
    if (Json args = arguments(span, undrawn); !args.empty()) event["args"] = std::move(args);
    line(event);
    if (span.flow != 0) arrow(pid, tid, span);
  }
  // The arrow ends where the await does, so that it never points back in time.
  void arrow(int pid, int tid, const Span& span) {
    const bool start = span.track == Track::Communication;
    const std::int64_t at = start ? span.begin : std::max(span.begin, span.end - 1);
    Json event{{"ph", start ? "s" : "f"}, {"name", "await"}, {"cat", "comm"}, {"pid", pid}};
    if (!start) event["bp"] = "e";
    event["id"] = static_cast<std::uint64_t>(pid) * 1'000'000'000 + span.flow;
    event["tid"] = tid;
    event["ts"] = micros(at - origin_);
    line(event);
  }
  void line(const Json& event) {
    out_ << (first_ ? "\n" : ",\n") << json_text(event);
    first_ = false;
  }

  std::ostream& out_;
  std::int64_t origin_;
  bool first_ = true;
};

}  // namespace

void ChromeTrace::keep(Span span) {
  kept_kernel_ = span.track == Track::Compute && spans_.size() < max_events_;
  if (spans_.size() < max_events_) {
    spans_.push_back(std::move(span));
  } else {
    ++dropped_;
  }
}

void ChromeTrace::issued(const CommEvent& event, std::int64_t now) {
  Issue& issue = issues_[event.id] = {.at = now, .module = module_at_work()};
  keep_issue(event, issue);
  if (event.link != link_ && !event.link.empty()) link_ = event.link;
}

void ChromeTrace::ready(const CommEvent& event, std::int64_t wait_begin, std::int64_t done,
                        std::int64_t now) {
  if (event.queued) return;  // what the host did says nothing of the streams
  const auto issue = issues_.extract(event.id);
  if (!issue) return;
  keep_collective(event, issue.mapped(), done, {"", Track::Host, wait_begin, now});
}

void ChromeTrace::stalled(const CommEvent& event, std::int64_t begin, std::int64_t end) {
  const auto issue = issues_.find(event.id);
  if (issue == issues_.end()) return;
  Issue& known = issue->second;
  if (!event.queued) return keep_wait(event, known, {"", Track::Host, begin, end});
  // The last one is kept with the collective.
  if (known.stall_end > known.stall_begin)
    keep_wait(event, known, {"", Track::Compute, known.stall_begin, known.stall_end});
  known.stall_begin = begin;
  known.stall_end = end;
}

void ChromeTrace::ran(const CommEvent& event, std::int64_t begin, std::int64_t end) {
  auto known = issues_.extract(event.id);
  if (!known) return;
  Issue& issue = known.mapped();
  issue.at = begin;
  if (issue.stall_end == 0) issue.stall_begin = issue.stall_end = end;  // in a recorded step
  keep_collective(event, issue, end, {"", Track::Compute, issue.stall_begin, issue.stall_end});
}

// Until it is awaited, nobody knows how long it takes.
void ChromeTrace::keep_issue(const CommEvent& event, Issue& issue) {
  if (spans_.size() + 2 > max_events_) {  // with its await
    dropped_ += 2;
    return;
  }
  issue.span = spans_.size();
  Span span{title(event), Track::Communication, issue.at, issue.at + kShortest};
  describe(span, event, issue);
  keep(std::move(span));
}

// Together with its await, so that every arrow has both ends.
void ChromeTrace::keep_collective(const CommEvent& event, const Issue& issue, std::int64_t done,
                                  Span wait) {
  if (!issue.span) return;
  Span& span = spans_[*issue.span];
  span.begin = issue.at;
  span.end = std::max(issue.at + kShortest, done);
  if (spans_.size() < max_events_) wait.flow = span.flow = ++flows_;
  keep_wait(event, issue, std::move(wait));
}

// Without a flow, and so without an arrow: one that does not end the await, if it took any time.
void ChromeTrace::keep_wait(const CommEvent& event, const Issue& issue, Span wait) {
  wait.name = "await " + title(event);
  wait.end = std::max(wait.end, wait.begin);
  if (wait.flow == 0 && wait.end == wait.begin) return;
  describe(wait, event, issue);
  keep(std::move(wait));
  kept_kernel_ = false;
}

void ChromeTrace::describe(Span& span, const CommEvent& event, const Issue& issue) {
  span.bytes = event.bytes;
  span.sequence = event.sequence;
  span.where = event.where;
  span.module = issue.module;
  span.communicator = event.communicator;
}

void ChromeTrace::computed(std::string_view op, ComputeClass what, std::int64_t begin,
                           std::int64_t end) {
  Span span{std::string(op), Track::Compute, begin, end};
  span.what = what;
  span.module = module_at_work();
  if (!inputs_.empty()) {
    span.inputs = std::move(inputs_.back());
    inputs_.pop_back();
  }
  keep(std::move(span));
}

void ChromeTrace::queued(std::uint64_t kernel) {
  if (kept_kernel_) untimed_[kernel] = spans_.size() - 1;
}

void ChromeTrace::kernel_ran(std::uint64_t kernel, std::int64_t begin, std::int64_t end) {
  const auto known = untimed_.extract(kernel);
  if (!known) return;
  spans_[known.mapped()].begin = begin;
  spans_[known.mapped()].end = std::max(end, begin + kShortest);
}

void ChromeTrace::open(std::string_view name, std::string module) {
  open_.push_back({std::string(name), now(), std::move(module), Branch::current().id()});
}

// Branches that are in ranges of one name may leave them in any order.
void ChromeTrace::range_exit(std::string_view name) {
  const auto entered = std::find_if(open_.rbegin(), open_.rend(), [name](const Open& open) {
    return open.name == name && open.branch == Branch::current().id();
  });
  if (entered == open_.rend()) return;
  Span span{entered->name, Track::Host, entered->begin, now()};
  span.module = entered->module;
  keep(std::move(span));
  open_.erase(std::next(entered).base());
}

void write_chrome_trace(std::ostream& out, std::span<const ChromeTrace> ranks, int first_rank,
                        std::optional<std::int64_t> clock_offset, const TraceAbout& about) {
  std::int64_t origin = std::numeric_limits<std::int64_t>::max();
  for (const ChromeTrace& rank : ranks)
    for (const Span& span : rank.spans()) origin = std::min(origin, span.begin);
  if (origin == std::numeric_limits<std::int64_t>::max()) origin = 0;
  Json data = Json::object();
  for (const auto& [name, value] : about) data[name] = value;
  data["clock"] = clock_offset ? "rank 0" : rank_clock->id;
  data["origin_ns"] = origin + clock_offset.value_or(0);
  out << R"({"displayTimeUnit":"ms","otherData":)" << json_text(data) << R"(,"traceEvents":[)";
  Writer writer(out, origin);
  for (std::size_t r = 0; r < ranks.size(); ++r)
    writer.rank(first_rank + static_cast<int>(r), ranks[r],
                about.contains("link") ? "" : ranks[r].link());
  out << "\n]}\n";
}

}  // namespace coshard
