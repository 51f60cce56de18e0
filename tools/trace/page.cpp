#include "tools/trace/page.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "tools/trace/page_text.h"

namespace coshard::tools {
namespace {

using overlap::RankTrace;
using overlap::TraceEvent;
using Kind = TraceEvent::Kind;

class Texts {
 public:
  std::size_t number_of(const std::string& text) {
    const auto [found, added] = numbers_.try_emplace(text, all_.size());
    if (added) all_.push_back(text);
    return found->second;
  }
  Json take() { return std::move(all_); }

 private:
  std::map<std::string, std::size_t> numbers_;
  Json all_ = Json::array();
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

Json lane(int rank, const std::string& name, bool compute, const Events& events, Texts& texts) {
  Json made{{"rank", rank}, {"name", name}, {"compute", compute}};
  for (const char* column : {"begin", "length", "text", "module"}) made[column] = Json::array();
  if (!compute) made["bytes"] = made["at"] = Json::array();
  std::int64_t before = 0;
  for (const TraceEvent* event : events) {
    const std::int64_t begin = shown_from(*event);
    made["begin"].push_back(begin - std::exchange(before, begin));
    made["length"].push_back(event->time.end - begin);
    made["text"].push_back(texts.number_of(event->name));
    made["module"].push_back(texts.number_of(event->module));
    if (compute) continue;
    made["bytes"].push_back(event->bytes);
    made["at"].push_back(texts.number_of(event->at));
  }
  return made;
}

void add_lanes(Json& lanes, const RankTrace& rank, Texts& texts) {
  lanes.push_back(lane(rank.rank, "compute", true, events_of(rank, Kind::Kernel), texts));
  std::map<std::string, Events> communicators;
  for (const TraceEvent* event : events_of(rank, Kind::Collective))
    communicators[event->communicator].push_back(event);
  for (const auto& [name, events] : communicators)
    lanes.push_back(lane(rank.rank, name.empty() ? "comm" : "comm " + name, false, events, texts));
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
  Texts texts;
  Json lanes = Json::array();
  for (const RankTrace& rank : trace) add_lanes(lanes, rank, texts);
  const overlap::Interval span = overlap::span_of(trace);
  return {{"report", std::move(report)},
          {"begin", span.begin},
          {"end", span.end},
          {"lanes", std::move(lanes)},
          {"texts", texts.take()},
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
