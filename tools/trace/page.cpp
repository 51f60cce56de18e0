#include "tools/trace/page.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "tools/trace/lane_parts.h"
#include "tools/trace/page_text.h"

namespace coshard::tools {
namespace {

using overlap::RankTrace;
using overlap::TraceEvent;
using Kind = TraceEvent::Kind;

// Each value once, with its number.
template <class Value>
class Numbered {
 public:
  std::size_t number_of(const Value& value) {
    return numbers_.try_emplace(value, numbers_.size()).first->second;
  }
  std::vector<Value> all() const {
    std::vector<Value> all(numbers_.size());
    for (const auto& [value, number] : numbers_) all[number] = value;
    return all;
  }

 private:
  std::map<Value, std::size_t> numbers_;
};

struct Names {
  Numbered<std::string> texts;
  Numbered<std::set<std::size_t>> modules;  // those of a part, as numbers of texts
};

using Events = std::vector<const TraceEvent*>;

// Collectives in flight together are drawn one after the other, as in the file.
std::int64_t shown_from(const TraceEvent& event) { return event.time.begin + event.queued_ns; }

Events events_of(const RankTrace& rank, Kind kind) {
  Events events;
  for (const TraceEvent& event : rank.events)
    if (event.kind == kind) events.push_back(&event);
  std::ranges::stable_sort(events, {}, [](const TraceEvent* event) { return shown_from(*event); });
  return events;
}

Json columns(std::initializer_list<const char*> names) {
  Json made = Json::object();
  for (const char* name : names) made[name] = Json::array();
  return made;
}

Json parts_json(const std::vector<LanePart>& parts, bool compute, Names& names) {
  Json made = columns({"begin", "length", "modules"});
  if (!compute) made["exposed"] = Json::array();
  std::int64_t before = 0;
  for (const LanePart& part : parts) {
    std::set<std::size_t> modules;
    for (const std::string& module : part.modules) modules.insert(names.texts.number_of(module));
    made["begin"].push_back(part.time.begin - std::exchange(before, part.time.begin));
    made["length"].push_back(part.time.length());
    made["modules"].push_back(names.modules.number_of(modules));
    if (!compute) made["exposed"].push_back(part.stood_still ? 1 : 0);
  }
  return made;
}

struct LaneOf {
  int rank;
  std::string name;
  bool compute;
};

Json lane(const LaneOf& of, const Events& events, const TimeSet& stood_still, Names& names) {
  Json made = columns({"begin", "length", "text", "module"});
  if (!of.compute) made.update(columns({"bytes", "at", "hidden"}));
  std::int64_t before = 0;
  std::vector<LaneEvent> drawn;
  for (const TraceEvent* event : events) {
    const overlap::Interval time{shown_from(*event), event->time.end};
    drawn.push_back({time, event->module});
    made["begin"].push_back(time.begin - std::exchange(before, time.begin));
    made["length"].push_back(time.length());
    made["text"].push_back(names.texts.number_of(event->name));
    made["module"].push_back(names.texts.number_of(event->module));
    if (of.compute) continue;
    made["bytes"].push_back(event->bytes);
    made["at"].push_back(names.texts.number_of(event->at));
    made["hidden"].push_back(time.length() - stood_still.within(time).length());
  }
  const std::vector<LanePart> parts = parts_of(drawn, stood_still);
  if (!of.compute || !std::ranges::equal(parts, drawn, {}, &LanePart::time, &LaneEvent::time))
    made["parts"] = parts_json(parts, of.compute, names);
  made.update({{"rank", of.rank}, {"name", of.name}, {"compute", of.compute}});
  return made;
}

void add_lanes(Json& lanes, const RankTrace& rank, Names& names) {
  const Events kernels = events_of(rank, Kind::Kernel);
  lanes.push_back(lane({rank.rank, "compute", true}, kernels, {}, names));
  std::map<std::string, Events> communicators;
  for (const TraceEvent* event : events_of(rank, Kind::Collective))
    communicators[event->communicator].push_back(event);
  const TimeSet stood_still = times_of(rank, Kind::Await);
  for (const auto& [name, events] : communicators) {
    const LaneOf of{rank.rank, name.empty() ? "comm" : "comm " + name, false};
    lanes.push_back(lane(of, events, stood_still, names));
  }
}

// The rank's ranges that lie in no other.
Json outer_ranges(const RankTrace& rank) {
  Json ranges = Json::array();
  std::int64_t end = std::numeric_limits<std::int64_t>::min();
  for (const TraceEvent* event : events_of(rank, Kind::Range)) {
    if (event->time.begin < end) continue;
    end = event->time.end;
    ranges.push_back({event->name, event->time.begin, end});
  }
  return ranges;
}

}  // namespace

Json page_data(const std::vector<RankTrace>& trace, Json report) {
  Names names;
  Json lanes = Json::array();
  for (const RankTrace& rank : trace) add_lanes(lanes, rank, names);
  const overlap::Interval span = overlap::span_of(trace);
  return {{"report", std::move(report)},
          {"begin", span.begin},
          {"end", span.end},
          {"lanes", std::move(lanes)},
          {"texts", names.texts.all()},
          {"modules", names.modules.all()},
          {"ranges", trace.empty() ? Json::array() : outer_ranges(trace.front())}};
}

void write_page(std::ostream& out, const Json& data) {
  constexpr std::string_view kMark = "{{TRACE}}";
  const std::string_view page(kPage, sizeof kPage);
  const std::size_t at = page.find(kMark);
  out << page.substr(0, at);
  const std::string text = json_text(data);
  for (std::size_t from = 0; from < text.size();) {  // no "</script>" may occur in it
    const std::size_t less = std::min(text.find('<', from), text.size());
    out << std::string_view(text).substr(from, less - from)
        << (less < text.size() ? "\\u003c" : "");
    from = less + 1;
  }
  out << page.substr(at + kMark.size());
}

}  // namespace coshard::tools
