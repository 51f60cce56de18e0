#include <coshard/dtensor/mesh/spec.h>

#include <algorithm>

#include <coshard/runtime/coro/rank_context.h>
#include <coshard/runtime/error.h>
#include "dtensor/mesh/bounded_cache.h"
#include "dtensor/mesh/marks.h"

namespace coshard {

Chunk chunk_of(std::int64_t size, std::int64_t n, std::int64_t index, std::int64_t unit) {
  const std::int64_t units = (size + unit - 1) / unit;
  const std::int64_t full = (units + n - 1) / n * unit;
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
        const Chunk piece = chunk_of(outer.size, n, index, p.unit);
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

struct SpecKind {
  static constexpr std::string_view kName = "specs";
  static constexpr bool kKeepsUsed = true;  // so that equal specs stay one object
  static std::size_t bytes_of(const Spec&) { return 0; }
  static bool lies_on(const Spec& spec, const void* mesh) { return spec.mesh.id() == mesh; }
};
using Specs = BoundedCache<Spec, SpecKind>;
const RankLocal<Specs> known_specs;

std::uint64_t hash_of(const DeviceMesh& mesh, const Layout& layout, const Shape& shape) {
  std::uint64_t h = reinterpret_cast<std::uintptr_t>(mesh.id());
  for (const Placement& p : layout) {
    mix_in(h, static_cast<std::uint64_t>(p.kind) | static_cast<std::uint64_t>(p.reduce) << 8 |
                  static_cast<std::uint64_t>(static_cast<std::uint16_t>(p.dim)) << 16 |
                  static_cast<std::uint64_t>(static_cast<std::uint32_t>(p.split)) << 32);
    if (p.unit != 1) mix_in(h, static_cast<std::uint64_t>(p.unit));
  }
  for (const std::int64_t size : shape) mix_in(h, static_cast<std::uint64_t>(size));
  return h;
}

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
  const std::uint64_t hash = hash_of(mesh, layout, shape);
  const auto matches = [&](const Spec& spec) {
    return spec.mesh.id() == mesh.id() && spec.layout == layout && spec.shape == shape;
  };
  if (const auto* found = known_specs->find(hash, matches)) return *found;
  CS_REQUIRE(layout.ndim() == mesh.ndim(), "layout ", layout, " has ", layout.ndim(),
             " entries, the mesh ", mesh, " has ", mesh.ndim(), " dimensions");
  std::int64_t elements = 1;
  for (const std::int64_t size : shape)
    CS_REQUIRE(size >= 0 && !__builtin_mul_overflow(elements, size, &elements),
               "a tensor of shape ", shape,
               ": sizes must be at least 0, and their product below 2^63");
  const Layout normal = normalize(layout, shape, "layout");
  if (!(normal == layout)) return make_spec(mesh, normal, shape);
  Spec spec{mesh, layout, shape, {}, {}};
  place_locally(spec);
  for (int m = 0; m < mesh.ndim(); ++m) {
    const std::uint64_t mark = mark_of(mesh, m);
    spec.mesh_marks |= mark;
    if (!spec.layout[m].is_replicate()) spec.marks |= mark;
  }
  return known_specs->add(hash, std::make_shared<const Spec>(std::move(spec)));
}

// A mesh is dropped when only specs hold it; all live specs are interned, so they can be counted.
void forget_dropped_meshes() {
  struct Mesh {
    const void* id;
    long holders, specs;
  };
  std::vector<Mesh> meshes;
  known_specs->each([&](const std::shared_ptr<const Spec>& spec) {
    const void* id = spec->mesh.id();
    auto known = std::ranges::find(meshes, id, &Mesh::id);
    if (known == meshes.end()) known = meshes.insert(known, {id, spec->mesh.holders(), 0});
    ++known->specs;
  });
  std::vector<const void*> dropped;
  for (const Mesh& mesh : meshes)
    if (mesh.holders == mesh.specs) dropped.push_back(mesh.id);
  if (!dropped.empty()) CacheBudget::of_rank().forget(dropped);
}

std::string describe(const Spec& spec) {
  return str_cat(spec.shape, ' ', spec.layout, " on ", spec.mesh);
}

}  // namespace coshard
