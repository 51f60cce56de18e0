#include <coshard/profiling/visualize_sharding.h>

#include <fmt/format.h>

#include <algorithm>
#include <range/v3/view/chunk.hpp>
#include <range/v3/view/drop.hpp>
#include <range/v3/view/enumerate.hpp>
#include <range/v3/view/zip.hpp>
#include <set>

#include <coshard/dtensor/distribute/distribute.h>

namespace coshard {
namespace views = ranges::views;
namespace {

// What each rank of the mesh holds: per tensor dimension, ranges.
using PartsOfRanks = std::vector<std::vector<std::vector<Range>>>;

std::string range_text(const Range& range) { return fmt::format("{}:{}", range.begin, range.end); }

PartsOfRanks parts_of(const std::vector<int>& mesh_shape, const Layout& layout,
                      const Shape& shape) {
  std::size_t ranks = 1;
  for (int size : mesh_shape) ranks *= static_cast<std::size_t>(size);
  PartsOfRanks parts(ranks);
  std::vector<int> coordinate(mesh_shape.size());
  for (const auto& [r, part] : views::enumerate(parts)) {
    auto rest = static_cast<int>(r);
    for (std::size_t m = mesh_shape.size(); m-- > 0; rest /= mesh_shape[m])
      coordinate[m] = rest % mesh_shape[m];
    for (const auto& [d, size] : views::enumerate(shape))
      part.push_back(ranges_of(layout, mesh_shape, coordinate, static_cast<int>(d), size));
  }
  return parts;
}

// Dimension d, split wherever a part of it begins or ends.
std::vector<Range> cells_of(const PartsOfRanks& parts, std::size_t d, std::int64_t size) {
  std::set<std::int64_t> cuts{0, size};
  for (const auto& part : parts)
    for (const Range& range : part[d]) cuts.insert({range.begin, range.end});
  std::vector<Range> cells;
  for (const auto& [begin, end] : views::zip(cuts, cuts | views::drop(1)))
    cells.push_back({begin, end});
  if (cells.empty()) cells.push_back({0, size});
  return cells;
}

bool holds(const std::vector<Range>& part, const Range& cell) {
  return std::ranges::any_of(part, [&](const Range& range) {
    return range.begin <= cell.begin && cell.end <= range.end && cell.begin < cell.end;
  });
}

// Sharded dimensions first, each group in order.
std::vector<int> by_interest(const std::vector<std::vector<Range>>& cells) {
  std::vector<int> dims;
  for (const bool cut : {true, false})
    for (const auto& [d, along] : views::enumerate(cells))
      if ((along.size() > 1) == cut) dims.push_back(static_cast<int>(d));
  if (dims.size() > 1 && dims[0] > dims[1] && cells[static_cast<std::size_t>(dims[1])].size() == 1)
    std::swap(dims[0], dims[1]);  // with one cut dimension, rows still come before columns
  return dims;
}

class GridMaker {
 public:
  GridMaker(const PartsOfRanks& parts, const std::vector<std::vector<Range>>& cells,
            const std::vector<int>& dims, const std::vector<int>& ranks)
      : parts_(parts), cells_(cells), dims_(dims), ranks_(ranks), chosen_(cells.size()) {
    for (std::size_t d = 0; d < cells.size(); ++d) chosen_[d] = cells[d].front();
  }

  // All combinations of parts of the dimensions from dims_[at] on.
  void make(std::size_t at, std::vector<ShardingGrid>& grids) {
    if (at >= dims_.size()) return grids.push_back(grid());
    const auto d = static_cast<std::size_t>(dims_[at]);
    for (const Range& cell : cells_[d]) {
      chosen_[d] = cell;
      make(at + 1, grids);
    }
  }

 private:
  std::vector<Range> along(std::size_t at) const {
    return at < dims_.size() ? cells_[static_cast<std::size_t>(dims_[at])]
                             : std::vector<Range>{{0, 1}};
  }

  ShardingGrid grid() {
    ShardingGrid out{"", along(0), along(1), {}};
    for (std::size_t at = 2; at < dims_.size(); ++at) {
      const auto d = static_cast<std::size_t>(dims_[at]);
      if (cells_[d].size() > 1)
        out.title +=
            fmt::format("{}dim {}: {}", out.title.empty() ? "" : ", ", d, range_text(chosen_[d]));
    }
    for (const Range& row : out.rows)
      for (const Range& column : out.columns) {
        if (!dims_.empty()) chosen_[static_cast<std::size_t>(dims_[0])] = row;
        if (dims_.size() > 1) chosen_[static_cast<std::size_t>(dims_[1])] = column;
        out.holders.push_back(holders());
      }
    return out;
  }

  std::vector<int> holders() const {
    std::vector<int> found;
    for (const auto& [part, rank] : views::zip(parts_, ranks_))
      if (std::ranges::equal(part, chosen_, holds)) found.push_back(rank);
    std::ranges::sort(found);
    return found;
  }

  const PartsOfRanks& parts_;
  const std::vector<std::vector<Range>>& cells_;
  const std::vector<int>& dims_;
  const std::vector<int>& ranks_;
  std::vector<Range> chosen_;
};

std::string partial_note(const Layout& layout) {
  std::string text;
  for (const auto& [m, placement] : views::enumerate(layout))
    if (placement.is_partial())
      text += str_cat(text.empty() ? "" : ", ", placement, " along mesh dimension ", m);
  return text.empty() ? "" : "each holder has a partial value: " + text;
}

Sharding make_sharding(std::string title, const std::vector<int>& mesh_shape,
                       const std::vector<int>& ranks, const Layout& layout, const Shape& shape) {
  Sharding sharding{std::move(title), partial_note(layout), -1, -1, {}};
  for (const auto& [placement, size] : views::zip(layout, mesh_shape))
    if (placement.is_partial()) sharding.terms *= size;
  const PartsOfRanks parts = parts_of(mesh_shape, layout, shape);
  std::vector<std::vector<Range>> cells;
  for (const auto& [d, size] : views::enumerate(shape)) cells.push_back(cells_of(parts, d, size));
  const std::vector<int> dims = by_interest(cells);
  if (!dims.empty()) sharding.row_dim = dims[0];
  if (dims.size() > 1) sharding.column_dim = dims[1];
  GridMaker(parts, cells, dims, ranks).make(2, sharding.grids);
  return sharding;
}

std::string holders_text(const std::vector<int>& holders) {
  return holders.empty() ? "-" : fmt::format("{}", fmt::join(holders, ","));
}

}  // namespace

Sharding sharding_of(const std::vector<int>& mesh_shape, const Layout& layout, const Shape& shape) {
  CS_REQUIRE(layout.ndim() == static_cast<int>(mesh_shape.size()), "sharding_of: layout ", layout,
             " has ", layout.ndim(), " entries, the mesh ", mesh_shape.size(), " dimensions");
  const Layout normal = normalize(layout, shape, "sharding_of");
  std::vector<int> ranks(1, 0);
  for (int size : mesh_shape) ranks.resize(ranks.size() * static_cast<std::size_t>(size));
  for (std::size_t r = 0; r < ranks.size(); ++r) ranks[r] = static_cast<int>(r);
  return make_sharding(
      str_cat(shape, ' ', normal, " on (", fmt::format("{}", fmt::join(mesh_shape, ",")), ')'),
      mesh_shape, ranks, normal, shape);
}

Sharding sharding_of(const DTensor& tensor) {
  CS_REQUIRE(tensor.defined() && tensor.is_distributed(), "sharding_of: ", tensor,
             " is a plain tensor");
  return make_sharding(describe(tensor), tensor.mesh().shape(), tensor.mesh().ranks(),
                       tensor.layout(), tensor.shape());
}

std::string visualize_sharding(const Sharding& sharding) {
  std::string text = sharding.title + '\n';
  for (const ShardingGrid& grid : sharding.grids) {
    if (!grid.title.empty()) text += grid.title + '\n';
    std::size_t width = 4;
    for (const auto& holders : grid.holders) width = std::max(width, holders_text(holders).size());
    for (const Range& r : grid.columns) width = std::max(width, range_text(r).size());
    std::size_t margin = 4;
    for (const Range& r : grid.rows) margin = std::max(margin, range_text(r).size());
    if (sharding.column_dim >= 0) {
      text += std::string(margin, ' ');
      for (const Range& r : grid.columns) text += fmt::format("  {:>{}}", range_text(r), width);
      text += '\n';
    }
    const auto lines = grid.holders | views::chunk(std::max<std::size_t>(grid.columns.size(), 1));
    for (const auto& [row, line] : views::zip(grid.rows, lines)) {
      text += fmt::format("{:<{}}", sharding.row_dim >= 0 ? range_text(row) : "", margin);
      for (const auto& holders : line)
        text += fmt::format("  {:>{}}", holders_text(holders), width);
      text += '\n';
    }
  }
  return sharding.note.empty() ? text : text + sharding.note + '\n';
}

std::string visualize_sharding(const std::vector<int>& mesh_shape, const Layout& layout,
                               const Shape& shape) {
  return visualize_sharding(sharding_of(mesh_shape, layout, shape));
}

std::string visualize_sharding(const DTensor& tensor) {
  return visualize_sharding(sharding_of(tensor));
}

}  // namespace coshard
