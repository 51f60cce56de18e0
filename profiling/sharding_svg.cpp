#include <fmt/format.h>

#include <algorithm>

#include <coshard/profiling/visualize_sharding.h>

namespace coshard {
namespace {

constexpr double kWidth = 480, kHeight = 320, kMargin = 70, kHead = 46, kLeast = 28;

// Sizes that tell large parts from small ones, and yet leave room for a number in each.
std::vector<double> sharding_extents(const std::vector<Range>& ranges, double whole) {
  std::int64_t sum = 0;
  for (const Range& r : ranges) sum += r.end - r.begin;
  std::vector<double> out;
  for (const Range& r : ranges) {
    const double share = sum > 0 ? static_cast<double>(r.end - r.begin) / static_cast<double>(sum)
                                 : 1.0 / static_cast<double>(ranges.size());
    out.push_back(std::max(kLeast, share * whole));
  }
  return out;
}

// Hues as far apart as the golden angle sets them.
std::string rank_color(int rank) {
  return fmt::format("hsl({:.0f},62%,74%)", static_cast<double>(rank * 137 % 360));
}

std::string xml_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  return out;
}

void svg_text(std::ostream& out, double x, double y, std::string_view anchor,
              std::string_view text) {
  out << fmt::format(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>)", x, y, anchor,
                     xml_escaped(text))
      << '\n';
}

void svg_cell(std::ostream& out, double x, double y, double width, double height,
              const std::vector<int>& holders) {
  const double stripe = width / static_cast<double>(std::max<std::size_t>(holders.size(), 1));
  for (std::size_t i = 0; i < holders.size(); ++i)
    out << fmt::format(R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="{}"/>)",
                       x + stripe * static_cast<double>(i), y, stripe, height,
                       rank_color(holders[i]))
        << '\n';
  out << fmt::format(
             R"(<rect class="cell" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="none" stroke="black"/>)",
             x, y, width, height)
      << '\n';
  const std::string text = holders.empty() ? "-" : fmt::format("{}", fmt::join(holders, ","));
  svg_text(out, x + width / 2, y + height / 2 + 4, "middle", text);
}

double svg_sum(const std::vector<double>& sizes) {
  double sum = 0;
  for (double size : sizes) sum += size;
  return sum;
}

// Draws one grid with its top at `top`; returns where the next one begins.
double svg_grid(std::ostream& out, const Sharding& sharding, const ShardingGrid& grid, double top) {
  const auto widths = sharding_extents(grid.columns, kWidth);
  const auto heights = sharding_extents(grid.rows, sharding.column_dim < 0 ? kLeast : kHeight);
  svg_text(out, kMargin, top + 14, "start", grid.title);
  double y = top + kHead;
  for (std::size_t i = 0; i < heights.size(); ++i) {
    if (sharding.row_dim >= 0)
      svg_text(out, kMargin - 6, y + heights[i] / 2 + 4, "end",
               fmt::format("{}:{}", grid.rows[i].begin, grid.rows[i].end));
    double x = kMargin;
    for (std::size_t j = 0; j < widths.size(); ++j) {
      if (i == 0 && sharding.column_dim >= 0)
        svg_text(out, x + widths[j] / 2, y - 6, "middle",
                 fmt::format("{}:{}", grid.columns[j].begin, grid.columns[j].end));
      svg_cell(out, x, y, widths[j], heights[i], grid.holders[i * widths.size() + j]);
      x += widths[j];
    }
    y += heights[i];
  }
  return y + kLeast;
}

}  // namespace

void write_sharding_svg(std::ostream& out, const Sharding& sharding) {
  double height = kHead, width = kWidth;
  for (const ShardingGrid& grid : sharding.grids) {
    width = std::max(width, svg_sum(sharding_extents(grid.columns, kWidth)));
    const double whole = sharding.column_dim < 0 ? kLeast : kHeight;
    height += kHead + kLeast + svg_sum(sharding_extents(grid.rows, whole));
  }
  out << fmt::format(
             R"(<svg xmlns="http://www.w3.org/2000/svg" width="{:.0f}" height="{:.0f}" font-family="sans-serif" font-size="12">)",
             width + 2 * kMargin, height)
      << '\n';
  svg_text(out, kMargin, 20, "start", sharding.title);
  if (!sharding.note.empty()) svg_text(out, kMargin, 38, "start", sharding.note);
  double top = kHead;
  for (const ShardingGrid& grid : sharding.grids) top = svg_grid(out, sharding, grid, top);
  out << "</svg>\n";
}

}  // namespace coshard
