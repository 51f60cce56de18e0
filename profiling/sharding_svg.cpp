#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <range/v3/view/chunk.hpp>
#include <range/v3/view/zip.hpp>

#include <coshard/profiling/visualize_sharding.h>

namespace coshard {
namespace {

constexpr double kWidth = 480, kHeight = 320, kPad = 16, kHead = 46, kLeast = 34;
constexpr double kGap = 5, kShift = 5;  // between cells; between stacked sheets
constexpr std::size_t kMostSheets = 4;
constexpr double kLetter = 7;  // width of one, at most

// Sizes that distinguish large from small parts, but leave room for a number in each.
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

double text_width(std::string_view text) { return kLetter * static_cast<double>(text.size()); }

std::string svg_range(const Range& range) { return fmt::format("{}:{}", range.begin, range.end); }

// Hues spaced by the golden angle.
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

// "rank 0", "ranks 0,2" or "ranks 0-7"; if that is too wide, their number.
std::string ranks_text(const std::vector<int>& ranks, double room) {
  if (ranks.empty()) return "-";
  const bool run =
      ranks.size() > 2 && ranks.back() - ranks.front() + 1 == static_cast<int>(ranks.size());
  const std::string text = run ? fmt::format("{}-{}", ranks.front(), ranks.back())
                               : fmt::format("{}", fmt::join(ranks, ","));
  const std::string whole = (ranks.size() == 1 ? "rank " : "ranks ") + text;
  if (text_width(whole) <= room) return whole;
  return text_width(text) <= room ? text : fmt::format("{} ranks", ranks.size());
}

// "2 replicas", "2 terms", "2 terms, 2 replicas of each"; "" for a part that one rank holds alone.
std::string copies_text(std::size_t holders, int terms) {
  const std::size_t replicas = holders / static_cast<std::size_t>(terms);
  std::string text = terms > 1 ? fmt::format("{} terms", terms) : "";
  if (replicas > 1 && terms > 1) return fmt::format("{}, {} replicas of each", text, replicas);
  if (replicas > 1) text = fmt::format("{} replicas", replicas);
  return text;
}

std::size_t sheets_of(const std::vector<int>& holders) {
  return std::clamp<std::size_t>(holders.size(), 1, kMostSheets);
}

class ShardingPicture {
 public:
  ShardingPicture(std::ostream& out, const Sharding& sharding) : out_(out), sharding_(sharding) {
    for (const ShardingGrid& grid : sharding.grids) {
      for (const Range& row : grid.rows)
        margin_ = std::max(margin_, 2 * kPad + text_width(svg_range(row)));
      for (const auto& holders : grid.holders)
        deck_ = std::max(deck_, kShift * static_cast<double>(sheets_of(holders) - 1));
    }
  }

  void draw() {
    double width = kPad + std::max(text_width(sharding_.title), text_width(sharding_.note));
    double height = kHead;
    for (const ShardingGrid& grid : sharding_.grids) {
      width = std::max(width, margin_ + sum(widths(grid)));
      height += kHead + kPad + sum(heights(grid));
    }
    out_ << fmt::format(
        R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0:.0f}" height="{1:.0f}" font-family="sans-serif" font-size="12">)"
        "\n"
        R"(<rect width="{0:.0f}" height="{1:.0f}" fill="white"/>)"
        "\n",
        width + kPad, height);
    svg_text(out_, kPad, 20, "start", sharding_.title);
    if (!sharding_.note.empty()) svg_text(out_, kPad, 38, "start", sharding_.note);
    double top = kHead;
    for (const ShardingGrid& grid : sharding_.grids) top = draw(grid, top);
    out_ << "</svg>\n";
  }

 private:
  static double sum(const std::vector<double>& sizes) {
    return std::accumulate(sizes.begin(), sizes.end(), 0.0);
  }
  std::vector<double> widths(const ShardingGrid& grid) const {
    return with_deck(sharding_extents(grid.columns, kWidth));
  }
  std::vector<double> heights(const ShardingGrid& grid) const {
    return with_deck(sharding_extents(grid.rows, sharding_.column_dim < 0 ? kLeast : kHeight));
  }
  std::vector<double> with_deck(std::vector<double> sizes) const {
    for (double& size : sizes) size += deck_;
    return sizes;
  }

  // With its top at `top`; returns where the next one begins.
  double draw(const ShardingGrid& grid, double top) {
    const auto across = widths(grid), down = heights(grid);
    svg_text(out_, kPad, top + 14, "start", grid.title);
    double y = top + kHead;
    const auto lines = grid.holders | ranges::views::chunk(std::max<std::size_t>(across.size(), 1));
    for (const auto& [height, row, line] : ranges::views::zip(down, grid.rows, lines)) {
      if (sharding_.row_dim >= 0)
        svg_text(out_, margin_ - 6, y + (height - deck_) / 2 + 4, "end", svg_range(row));
      double x = margin_;
      for (const auto& [width, column, holders] : ranges::views::zip(across, grid.columns, line)) {
        if (y == top + kHead && sharding_.column_dim >= 0)
          svg_text(out_, x + (width - deck_) / 2, y - 6, "middle", svg_range(column));
        cell(x, y, width - deck_ - kGap, height - deck_ - kGap, holders);
        x += width;
      }
      y += height;
    }
    return y + kPad;
  }

  void cell(double x, double y, double width, double height, const std::vector<int>& holders) {
    for (std::size_t behind = sheets_of(holders); behind-- > 0;) {
      const double shift = kShift * static_cast<double>(behind);
      out_
          << fmt::format(
                 R"(<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="{}" stroke="black"{}/>)",
                 behind > 0 ? "sheet" : "cell", x + shift, y + shift, width, height,
                 holders.empty() ? "none" : rank_color(holders.front()),
                 sharding_.terms > 1 ? R"( stroke-dasharray="4 3")" : "")
          << '\n';
    }
    const std::string copies = copies_text(holders.size(), sharding_.terms);
    const bool second =
        !copies.empty() && height >= 2 * kLetter + 16 && text_width(copies) <= width;
    const double middle = y + height / 2 + 4;
    svg_text(out_, x + width / 2, second ? middle - 7 : middle, "middle",
             ranks_text(holders, width));
    if (second) svg_text(out_, x + width / 2, middle + 9, "middle", copies);
  }

  std::ostream& out_;
  const Sharding& sharding_;
  double margin_ = 2 * kPad, deck_ = 0;
};

}  // namespace

void write_sharding_svg(std::ostream& out, const Sharding& sharding) {
  ShardingPicture(out, sharding).draw();
}

}  // namespace coshard
