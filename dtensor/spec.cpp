#include "dtensor/spec.h"

#include <unordered_map>

#include "runtime/coro/rank_context.h"
#include "runtime/error.h"

namespace coshard {

Chunk chunk_of(std::int64_t size, std::int64_t n, std::int64_t index) {
  const std::int64_t full = (size + n - 1) / n;
  const std::int64_t begin = std::min(size, full * index);
  return {std::min(size, full * (index + 1)) - begin, begin};
}

namespace {

// The part [from, from+count) of positions listed as ranges.
std::vector<Range> slice_of(const std::vector<Range>& ranges, std::int64_t from,
                            std::int64_t count) {
  std::vector<Range> out;
  for (const Range& range : ranges) {
    const std::int64_t size = range.end - range.begin;
    const std::int64_t lo = std::max<std::int64_t>(from, 0);
    const std::int64_t hi = std::min(from + count, size);
    if (lo < hi) out.push_back({range.begin + lo, range.begin + hi});
    from -= size;
  }
  return out;
}

}  // namespace

std::int64_t count_of(const std::vector<Range>& ranges) {
  std::int64_t count = 0;
  for (const Range& range : ranges) count += range.end - range.begin;
  return count;
}

std::vector<Range> ranges_of(const Layout& layout, const std::vector<int>& mesh_shape,
                             const std::vector<int>& coordinate, int dim, std::int64_t size) {
  std::vector<Range> ranges{{0, size}};
  for (int m = 0; m < layout.ndim(); ++m) {
    const Placement& p = layout[m];
    const int n = mesh_shape[static_cast<std::size_t>(m)];
    const int index = coordinate[static_cast<std::size_t>(m)];
    if (p.is_shard(dim)) {
      const Chunk chunk = chunk_of(count_of(ranges), n, index);
      ranges = slice_of(ranges, chunk.offset, chunk.size);
    } else if (p.is_strided() && p.dim == dim) {
      std::vector<Range> joined;
      const std::int64_t total = count_of(ranges);
      for (int s = 0; s < p.split; ++s) {
        const Chunk outer = chunk_of(total, p.split, s);
        const Chunk piece = chunk_of(outer.size, n, index);
        for (const Range& r : slice_of(ranges, outer.offset + piece.offset, piece.size)) {
          joined.push_back(r);
        }
      }
      ranges = joined;
    }
  }
  return ranges;
}

namespace {

struct SpecHash {
  std::size_t operator()(const Spec* spec) const {
    std::size_t h = spec->shape.size();
    for (auto size : spec->shape) h = h * 1099511628211ULL + static_cast<std::size_t>(size);
    for (const Placement& p : spec->layout) {
      h = h * 1099511628211ULL + static_cast<std::size_t>(p.kind) * 64 +
          static_cast<std::size_t>(p.reduce) * 8 + static_cast<std::size_t>(p.dim) + 1 +
          static_cast<std::size_t>(p.split) * 4096;
    }
    return h * 31 + std::hash<const void*>{}(spec->mesh.id());
  }
};
struct SpecEqual {
  bool operator()(const Spec* a, const Spec* b) const {
    return a->mesh.id() == b->mesh.id() && a->layout == b->layout && a->shape == b->shape;
  }
};

void place_locally(Spec& spec) {
  const DeviceMesh& mesh = spec.mesh;
  if (!mesh.contains_this_rank()) {
    spec.local_shape = spec.offset = Shape{0};
    return;
  }
  const std::vector<int>& coordinate = mesh.coordinate();
  spec.local_shape = spec.shape;
  spec.offset = Shape::filled(spec.shape.size(), 0);
  for (std::size_t d = 0; d < spec.shape.size(); ++d) {
    const auto ranges =
        ranges_of(spec.layout, mesh.shape(), coordinate, static_cast<int>(d), spec.shape[d]);
    spec.local_shape[d] = count_of(ranges);
    spec.offset[d] = ranges.empty() ? spec.shape[d] : ranges.front().begin;
  }
}

}  // namespace

std::shared_ptr<const Spec> make_spec(const DeviceMesh& mesh, const Layout& layout,
                                      const Shape& shape) {
  // Interned values outlive no world: the table belongs to the rank's thread and is keyed by the
  // mesh object, which every entry keeps alive.
  using Specs = std::unordered_map<const Spec*, std::shared_ptr<const Spec>, SpecHash, SpecEqual>;
  static const RankLocal<Specs> specs;
  Specs& table = *specs;
  Spec key{mesh, layout, shape, {}, {}};
  if (const auto found = table.find(&key); found != table.end()) return found->second;
  CS_REQUIRE(layout.ndim() == mesh.ndim(), "layout ", layout, " has ", layout.ndim(),
             " entries, the mesh ", mesh, " has ", mesh.ndim(), " dimensions");
  std::int64_t elements = 1;
  for (const std::int64_t size : shape)
    CS_REQUIRE(size >= 0 && !__builtin_mul_overflow(elements, size, &elements),
               "a tensor of shape ", shape,
               ": sizes must be at least 0, and their product below 2^63");
  key.layout = normalize(layout, shape, "layout");
  place_locally(key);
  auto spec = std::make_shared<const Spec>(std::move(key));
  if (!(spec->layout == layout)) return make_spec(mesh, spec->layout, shape);
  table.emplace(spec.get(), spec);
  return spec;
}

std::string describe(const Spec& spec) {
  return cat(spec.shape, ' ', spec.layout, " on ", spec.mesh);
}

}  // namespace coshard
