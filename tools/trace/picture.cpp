#include "tools/trace/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace coshard::tools {
namespace {

using overlap::Interval;
using overlap::RankTrace;
using overlap::TraceEvent;
using Kind = TraceEvent::Kind;

constexpr double kWidth = 760, kLeft = 136, kRight = 16;
constexpr double kTitle = 34, kLane = 22, kGap = 6, kKey = 34;
constexpr std::size_t kMostLanes = 4;
constexpr std::string_view kCompute = "#8c959f", kHidden = "#2da44e", kExposed = "#cf222e";

struct Lanes {
  int rank = 0;
  TimeSet computing, in_flight, stood_still;
  TimeSet exposed() const { return in_flight.common(stood_still); }
  TimeSet hidden() const { return in_flight.minus(stood_still); }
};

struct Panel {
  std::string title;
  Interval step;
  std::vector<Lanes> lanes;
  double height() const {
    return kTitle + static_cast<double>(lanes.size()) * (2 * (kLane + kGap) + kGap);
  }
};

const TraceEvent* last_step(const RankTrace& rank) {
  const TraceEvent* last = nullptr;
  for (const TraceEvent& event : rank.events)
    if (event.kind == Kind::Range && event.name.starts_with("step") &&
        (last == nullptr || event.time.begin > last->time.begin))
      last = &event;
  return last;
}

// From the first rank that begins it to the last one that ends it.
Interval step_of(const std::vector<RankTrace>& trace) {
  std::vector<RankTrace> steps;
  for (const RankTrace& rank : trace)
    if (const TraceEvent* step = last_step(rank)) steps.push_back({rank.rank, "", 0, {*step}});
  return span_of(steps.empty() ? trace : steps);
}

double shown_ms(std::int64_t ns) { return static_cast<double>(ns) / 1e6; }

Panel panel_of(const std::vector<RankTrace>& trace, std::string_view name) {
  Panel panel{"", step_of(trace), {}};
  std::int64_t in_flight = 0, hidden = 0;
  for (const RankTrace& rank : trace) {
    const auto within = [&](Kind kind) { return times_of(rank, kind).within(panel.step); };
    Lanes lanes{rank.rank, within(Kind::Kernel), within(Kind::Collective), within(Kind::Await)};
    in_flight += lanes.in_flight.length(), hidden += lanes.hidden().length();
    if (panel.lanes.size() < kMostLanes) panel.lanes.push_back(std::move(lanes));
  }
  const auto ranks = static_cast<std::int64_t>(std::max<std::size_t>(trace.size(), 1));
  panel.title = fmt::format("{}{:.0f} ms; communication is in flight for {:.0f} ms", name,
                            shown_ms(panel.step.length()), shown_ms(in_flight / ranks));
  if (in_flight > 0)
    panel.title += fmt::format(", {:.0f} % of it hidden", 100.0 * static_cast<double>(hidden) /
                                                              static_cast<double>(in_flight));
  return panel;
}

class Picture {
 public:
  Picture(std::ostream& out, double ns_per_pixel) : out_(out), ns_per_pixel_(ns_per_pixel) {}

  void draw(const Panel& panel) {
    text(16, y_ + 22, panel.title, 600);
    y_ += kTitle;
    for (const Lanes& lanes : panel.lanes) {
      begin_lane(fmt::format("rank {} computes", lanes.rank));
      fill(lanes.computing, panel.step, kCompute);
      begin_lane("in flight");
      fill(lanes.hidden(), panel.step, kHidden);
      fill(lanes.exposed(), panel.step, kExposed);
      y_ += kGap;
    }
  }
  void draw_key() {
    double x = kLeft;
    for (const auto& [color, meaning] :
         {std::pair(kCompute, "computes"), std::pair(kHidden, "communication, hidden"),
          std::pair(kExposed, "communication, exposed")}) {
      out_ << fmt::format(R"(<rect x="{:.0f}" y="{:.0f}" width="14" height="14" fill="{}"/>)", x,
                          y_ + 8, color);
      text(x + 20, y_ + 20, meaning, 400);
      x += 60 + 7 * static_cast<double>(std::string_view(meaning).size());
    }
  }

 private:
  void text(double x, double y, std::string_view words, int weight) {
    out_ << fmt::format(R"(<text x="{:.0f}" y="{:.0f}" font-weight="{}">{}</text>)", x, y, weight,
                        words)
         << '\n';
  }
  void begin_lane(std::string_view name) {
    text(16, y_ + 16, name, 400);
    lane_ = y_;
    y_ += kLane + kGap;
  }
  // Gaps too small to see are left out.
  void fill(const TimeSet& times, const Interval& step, std::string_view color) {
    std::string path;
    std::optional<Interval> open;
    const auto close = [&] {
      if (open)
        path += fmt::format("M{:.1f} {:.0f}h{:.1f}v{:.0f}h-{:.1f}z", x_of(open->begin - step.begin),
                            lane_, width_of(*open), kLane, width_of(*open));
    };
    for (const Interval& time : times.intervals()) {
      if (open && static_cast<double>(time.begin - open->end) < 0.2 * ns_per_pixel_) {
        open->end = time.end;
        continue;
      }
      close();
      open = time;
    }
    close();
    if (!path.empty()) out_ << fmt::format(R"(<path fill="{}" d="{}"/>)", color, path) << '\n';
  }
  double x_of(std::int64_t ns) const { return kLeft + static_cast<double>(ns) / ns_per_pixel_; }
  double width_of(const Interval& time) const {
    return std::max(0.1, static_cast<double>(time.length()) / ns_per_pixel_);
  }

  std::ostream& out_;
  double ns_per_pixel_, y_ = 6, lane_ = 0;
};

}  // namespace

void write_picture(std::ostream& out, const std::vector<RankTrace>& trace,
                   const std::vector<RankTrace>* baseline) {
  std::vector<Panel> panels;
  if (baseline != nullptr) panels.push_back(panel_of(*baseline, "Without overlap: "));
  panels.push_back(panel_of(trace, baseline != nullptr ? "With overlap: " : "One step: "));
  std::int64_t longest = 1;
  double height = kKey + 6;
  for (const Panel& panel : panels) {
    longest = std::max(longest, panel.step.length());
    height += panel.height();
  }
  out << fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1:.0f}" role="img" font-family="sans-serif" font-size="13">)"
      "\n<title>{2}</title>\n"
      R"(<rect width="{0}" height="{1:.0f}" rx="6" fill="#ffffff" stroke="#d0d7de"/>)"
      "\n<g fill=\"#24292f\">\n",
      kWidth, height, panels.back().title);
  Picture picture(out, static_cast<double>(longest) / (kWidth - kLeft - kRight));
  for (const Panel& panel : panels) picture.draw(panel);
  picture.draw_key();
  out << "</g>\n</svg>\n";
}

}  // namespace coshard::tools
