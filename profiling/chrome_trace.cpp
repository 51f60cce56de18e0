#include <coshard/profiling/chrome_trace.h>

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "profiling/json.h"
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

constexpr std::int64_t kShortest = 100;  // ns; a span without length could not hold an arrow

// Outer spans first.
bool before(const Span& a, const Span& b) {
  return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
}

// Collectives of one stream complete in order: each is drawn from its issue, or from the end of the
// one before.
void lay_end_to_end(std::vector<Span>& spans) {
  std::int64_t free_at = std::numeric_limits<std::int64_t>::min();
  for (Span& span : spans) {
    span.begin = std::max(span.begin, free_at);
    span.end = std::max(span.end, span.begin + kShortest);
    free_at = span.end;
  }
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

// What a span shows when it is selected.
Json arguments(const Span& span) {
  if (span.flow != 0) {
    Json args{{"bytes", span.bytes}, {"sequence", span.sequence}};
    if (span.where.known()) args["at"] = location_of(span.where);
    return args;
  }
  if (span.track != Track::Compute) return {};
  Json args{{"kind", kernel_kind(span.what)}};
  if (!span.inputs.empty()) args["inputs"] = span.inputs;
  return args;
}

class Writer {
 public:
  Writer(std::ostream& out, std::int64_t origin) : out_(out), origin_(origin) {}

  void about(std::string_view what, int pid, int tid, Json args) {
    line({{"ph", "M"}, {"name", what}, {"pid", pid}, {"tid", tid}, {"args", std::move(args)}});
  }
  void span(int pid, const Span& span) {
    const int tid = static_cast<int>(span.track);
    Json event{{"ph", "X"}, {"name", span.name}, {"pid", pid}, {"tid", tid}};
    event["ts"] = micros(span.begin - origin_);
    event["dur"] = micros(span.end - span.begin);
    if (Json args = arguments(span); !args.empty()) event["args"] = std::move(args);
    line(event);
    if (span.flow != 0) arrow(pid, span);
  }

 private:
  // The arrow ends where the await does, so that it never points back in time.
  void arrow(int pid, const Span& span) {
    const bool start = span.track == Track::Communication;
    const std::int64_t at = start ? span.begin : std::max(span.begin, span.end - 1);
    Json event{{"ph", start ? "s" : "f"}, {"name", "await"}, {"cat", "comm"}, {"pid", pid}};
    if (!start) event["bp"] = "e";
    event["id"] = static_cast<std::uint64_t>(pid) * 1'000'000'000 + span.flow;
    event["tid"] = static_cast<int>(span.track);
    event["ts"] = micros(at - origin_);
    line(event);
  }
  static double micros(std::int64_t ns) { return static_cast<double>(ns) / 1000; }
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
  if (spans_.size() < max_events_) {
    spans_.push_back(std::move(span));
  } else {
    ++dropped_;
  }
}

void ChromeTrace::issued(const CommEvent& event, std::int64_t now) {
  issued_at_[event.id] = now;
  if (event.link != link_ && !event.link.empty()) link_ = event.link;
}

// The collective and its await are kept together, so that no arrow lacks an end.
void ChromeTrace::ready(const CommEvent& event, std::int64_t wait_begin, std::int64_t done,
                        std::int64_t now) {
  const auto issue = issued_at_.find(event.id);
  if (issue == issued_at_.end()) return;
  const std::int64_t begin = issue->second;
  issued_at_.erase(issue);
  if (spans_.size() + 2 > max_events_) {
    dropped_ += 2;
    return;
  }
  const std::uint64_t flow = ++flows_;
  const std::string name = title(event);
  spans_.push_back({name, Track::Communication, begin, std::max(begin, done), flow, event.bytes,
                    event.sequence, event.where});
  spans_.push_back({"await " + name, Track::Host, wait_begin, std::max(now, wait_begin + kShortest),
                    flow, event.bytes, event.sequence, event.where});
}

void ChromeTrace::computed(std::string_view op, ComputeClass what, std::int64_t begin,
                           std::int64_t end) {
  Span span{std::string(op), Track::Compute, begin, end};
  span.what = what;
  if (!inputs_.empty()) {
    span.inputs = std::move(inputs_.back());
    inputs_.pop_back();
  }
  keep(std::move(span));
}

void ChromeTrace::range_exit(std::string_view name) {
  const auto entered = std::find_if(open_.rbegin(), open_.rend(),
                                    [name](const Open& open) { return open.name == name; });
  if (entered == open_.rend()) return;
  keep({entered->name, Track::Host, entered->begin, now_ns()});
  open_.erase(std::next(entered).base());
}

void write_chrome_trace(std::ostream& out, std::span<const ChromeTrace> ranks) {
  std::int64_t origin = std::numeric_limits<std::int64_t>::max();
  for (const ChromeTrace& rank : ranks)
    for (const Span& span : rank.spans()) origin = std::min(origin, span.begin);
  out << R"({"displayTimeUnit":"ms","traceEvents":[)";
  Writer writer(out, origin);
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const int pid = static_cast<int>(r);
    writer.about("process_name", pid, 0, {{"name", fmt::format("rank {}", r)}});
    const std::string& link = ranks[r].link();
    const std::string tracks[] = {
        "host", "compute", link.empty() ? "communication" : "communication, emulated link " + link};
    for (int tid = 0; tid < 3; ++tid) {
      writer.about("thread_name", pid, tid, {{"name", tracks[tid]}});
      writer.about("thread_sort_index", pid, tid, {{"sort_index", tid}});
      std::vector<Span> spans;
      for (const Span& span : ranks[r].spans())
        if (static_cast<int>(span.track) == tid) spans.push_back(span);
      std::stable_sort(spans.begin(), spans.end(), before);
      if (tid == static_cast<int>(Track::Communication)) {
        lay_end_to_end(spans);
      } else {
        clip_to_nest(spans);
      }
      for (const Span& span : spans) writer.span(pid, span);
    }
  }
  out << "\n]}\n";
}

}  // namespace coshard
