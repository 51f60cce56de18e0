#include "profiling/observer_json.h"

#include "runtime/interned_text.h"

namespace coshard {

namespace {

Json of_row(const CommSummary::Row& row) {
  return {static_cast<int>(row.kind), row.label,      row.count,     row.bytes,
          row.in_flight_ns,           row.exposed_ns, row.blocked_ns};
}

CommSummary::Row row_of(const Json& row) {
  return {static_cast<CollectiveKind>(row[0].get<int>()),
          row[1],
          row[2],
          row[3],
          row[4],
          row[5],
          row[6]};
}

}  // namespace

Json ObserverJson::of(const CommSummary& summary) {
  Json rows = Json::array();
  for (const CommSummary::Row& row : summary.rows()) rows.push_back(of_row(row));
  return {{"link", summary.link_},
          {"compute", summary.compute_ns_},
          {"rows", std::move(rows)},
          {"total", of_row(summary.total())}};
}

CommSummary ObserverJson::summary(const Json& json) {
  CommSummary made;
  made.link_ = json["link"];
  made.compute_ns_ = json["compute"];
  for (const Json& each : json["rows"]) {
    CommSummary::Row row = row_of(each);
    made.rows_[{row.kind, row.label}].row = std::move(row);
  }
  made.total_.row = row_of(json["total"]);
  return made;
}

Json ObserverJson::of(const ChromeTrace& trace) {
  Json spans = Json::array();
  for (const ChromeTrace::Span& s : trace.spans_)
    spans.push_back({s.name, static_cast<int>(s.track), s.begin, s.end, s.flow, s.bytes, s.sequence,
                     s.where.file, s.where.line, static_cast<int>(s.what), s.inputs, s.module,
                     s.communicator});
  return {{"link", trace.link_}, {"dropped", trace.dropped_}, {"spans", std::move(spans)}};
}

ChromeTrace ObserverJson::trace(const Json& json, std::int64_t later) {
  ChromeTrace made;
  made.link_ = json["link"];
  made.dropped_ = json["dropped"];
  for (const Json& s : json["spans"]) {
    ChromeTrace::Span& span = made.spans_.emplace_back();
    span.name = s[0];
    span.track = static_cast<ChromeTrace::Track>(s[1].get<int>());
    span.begin = s[2].get<std::int64_t>() + later;
    span.end = s[3].get<std::int64_t>() + later;
    span.flow = s[4];
    span.bytes = s[5];
    span.sequence = s[6];
    span.where = {interned(s[7]).data(), s[8]};
    span.what = static_cast<ComputeClass>(s[9].get<int>());
    span.inputs = s[10];
    span.module = s[11];
    span.communicator = s[12];
  }
  return made;
}

}  // namespace coshard
