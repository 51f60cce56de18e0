#include "dtensor/redistribute/dim_shardings.h"

#include <algorithm>
#include <bit>
#include <unordered_map>

#include <coshard/dtensor/mesh/spec.h>

namespace coshard {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

// The positions that a rank still shares with others, as digits, the highest first.
struct FreeDigit {
  std::int64_t weight, radix;
};
using FreeDigits = InlineVector<FreeDigit, 4 * kMaxMeshDims>;

// Removes the highest part of `radix` values, from digit number `first` on, and calls `take` for
// each part removed. False: digits do not divide that way.
template <class Take>
bool take_top(FreeDigits& free, std::size_t& first, std::int64_t radix, bool stays,
              const Take& take) {
  while (radix > 1) {
    if (first == free.size() || free.size() + 1 > 4 * kMaxMeshDims) return false;
    FreeDigit& top = free[first];
    const std::int64_t part = std::min(radix, top.radix);
    if (radix % part != 0 || top.radix % part != 0) return false;
    radix /= part;
    const FreeDigit high{top.weight * (top.radix / part), part};
    if (!take(high, radix)) return false;
    if (part < top.radix) {
      top.radix /= part;
      if (stays) free.insert(first++, high);
    } else if (stays) {
      ++first;
    } else {
      free.erase(first);
    }
  }
  return true;
}

// Fills dims, digits and `most`; false: the sizes are uneven.
bool digits_of(DimSharding& sharding, const MeshGrid& grid, std::int64_t size) {
  FreeDigits free;
  if (size > 1) free.push_back({1, size});
  std::int64_t total = size;
  for (int m = 0; m < grid.ndim; ++m) {
    if (!has(sharding.dims, m)) continue;
    const std::int64_t n = grid.size[at(m)], split = split_of(sharding.key[at(m)]);
    if (total % (n * split * unit_of(sharding.key[at(m)])) != 0) return false;
    std::size_t first = 0;
    const auto leave = [](const FreeDigit&, std::int64_t) { return true; };
    if (!take_top(free, first, split, true, leave)) return false;
    const auto fix = [&](const FreeDigit& digit, std::int64_t place) {
      if (sharding.digits.size() == 2 * kMaxMeshDims) return false;
      sharding.digits.push_back({digit.weight, digit.radix, m, place});
      return true;
    };
    if (!take_top(free, first, n, false, fix)) return false;
    total /= n;
  }
  sharding.most = static_cast<double>(total);
  return true;
}

// The ranges of a group of owners along one more mesh dimension: torch.chunk of each chunk, in
// units.
void shard_group(const ShardRange* range, const ShardRange* end, int n, int shift, std::int64_t key,
                 std::vector<ShardRange>& out) {
  const std::int64_t split = split_of(key), unit = unit_of(key);
  std::int64_t total = 0, position = 0;
  for (const ShardRange* p = range; p != end; ++p) total += p->end - p->begin;
  const std::int64_t outer = (total + split - 1) / split;
  for (; range != end; ++range) {
    for (std::int64_t begin = range->begin; begin < range->end;) {
      const std::int64_t chunk = position / outer * outer;
      const std::int64_t size = std::min(outer, total - chunk);
      const std::int64_t full = chunk_of(size, n, 0, unit).size;
      const std::int64_t index = (position - chunk) / full;
      const std::int64_t stop = chunk + std::min(size, (index + 1) * full);
      const std::int64_t count = std::min(range->end - begin, stop - position);
      out.push_back({begin, begin + count, range->owner | static_cast<unsigned>(index) << shift});
      begin += count;
      position += count;
    }
  }
}

std::vector<ShardRange> ranges_of(const DimSharding& sharding, const MeshGrid& grid,
                                  std::int64_t size) {
  std::vector<ShardRange> ranges{{0, size, 0}}, next;
  for (int m = 0; m < grid.ndim; ++m) {
    if (!has(sharding.dims, m)) continue;
    next.clear();
    for (std::size_t i = 0; i < ranges.size();) {
      std::size_t end = i;
      while (end < ranges.size() && ranges[end].owner == ranges[i].owner) ++end;
      shard_group(&ranges[i], ranges.data() + end, grid.size[at(m)], grid.shift[at(m)],
                  sharding.key[at(m)], next);
      i = end;
    }
    if (split_of(sharding.key[at(m)]) > 1)
      std::ranges::stable_sort(next, {}, [](const ShardRange& range) { return range.owner; });
    ranges.swap(next);
  }
  return ranges;
}

}  // namespace

MeshGrid::MeshGrid(const std::vector<int>& mesh_shape) : ndim(static_cast<int>(mesh_shape.size())) {
  int bits = 0;
  for (int m = ndim; m-- > 0;) {
    size[at(m)] = mesh_shape[at(m)];
    shift[at(m)] = bits;
    bits += std::bit_width(static_cast<unsigned>(size[at(m)] - 1));
    ranks *= size[at(m)];
  }
  codes = 1U << bits;
}

unsigned MeshGrid::bits_of(MeshDims dims) const {
  unsigned bits = 0;
  for (int m = 0; m < ndim; ++m)
    if (has(dims, m))
      bits |= (std::bit_ceil(static_cast<unsigned>(size[at(m)])) - 1) << shift[at(m)];
  return bits;
}

int MeshGrid::size_of(MeshDims dims) const {
  int product = 1;
  for (int m = 0; m < ndim; ++m)
    if (has(dims, m)) product *= size[at(m)];
  return product;
}

int DimShardings::id_of(const ShardingKey& key) {
  for (std::size_t i = 0; i < shardings_.size(); ++i)
    if (shardings_[i]->key == key) return static_cast<int>(i);
  auto sharding = std::make_unique<DimSharding>();
  sharding->key = key;
  for (int m = 0; m < grid_->ndim; ++m)
    if (key[at(m)] != 0) sharding->dims |= 1U << m;
  sharding->even = digits_of(*sharding, *grid_, size_);
  shardings_.push_back(std::move(sharding));
  const int id = static_cast<int>(shardings_.size()) - 1;
  DimSharding& made = *shardings_.back();
  if (made.even) return id;
  std::int64_t count = 0, most = 0;
  unsigned owner = 0;
  for (const ShardRange& range : with_ranges(id).by_owner) {
    count = (range.owner == owner ? count : 0) + range.end - range.begin;
    owner = range.owner;
    most = std::max(most, count);
  }
  made.most = static_cast<double>(most);
  return id;
}

const DimSharding& DimShardings::with_ranges(int id) {
  DimSharding& sharding = *shardings_[at(id)];
  if (!sharding.by_owner.empty()) return sharding;
  sharding.by_owner = sharding.by_position = ranges_of(sharding, *grid_, size_);
  std::ranges::sort(sharding.by_position, {}, [](const ShardRange& range) { return range.begin; });
  return sharding;
}

const ShardingPair& DimShardings::compare(int from, int to) {
  ShardingPair& pair = slot(from, to);
  const DimSharding &a = *shardings_[at(from)], &b = *shardings_[at(to)];
  pair.known = true;
  pair.even = a.even && b.even && compare_digits(a, b, pair);
  if (!pair.even) compare_ranges(with_ranges(from), with_ranges(to), pair);
  return pair;
}

namespace {

// Whether both are digits of one number system: each weight divides the next.
bool chain(const ShardDigit& a, const ShardDigit& b) {
  for (const std::int64_t x : {a.weight, a.weight * a.radix})
    for (const std::int64_t y : {b.weight, b.weight * b.radix})
      if (std::max(x, y) % std::min(x, y) != 0) return false;
  return true;
}

}  // namespace

// False: the two are digits of different number systems.
bool DimShardings::compare_digits(const DimSharding& from, const DimSharding& to,
                                  ShardingPair& pair) const {
  std::array<std::int64_t, kMaxMeshDims> agreed{};
  agreed.fill(1);
  std::int64_t shared = 1;
  bool conflict = false;
  for (const ShardDigit& a : from.digits)
    for (const ShardDigit& b : to.digits) {
      if (!chain(a, b)) return false;
      const std::int64_t low = std::max(a.weight, b.weight);
      const std::int64_t high = std::min(a.weight * a.radix, b.weight * b.radix);
      if (high <= low) continue;
      if (a.mesh_dim == b.mesh_dim && a.place * (low / a.weight) == b.place * (low / b.weight)) {
        agreed[at(a.mesh_dim)] *= high / low;
        shared *= high / low;
      } else {
        conflict = true;
      }
    }
  for (int m = 0; m < grid_->ndim; ++m)
    if (has(from.dims, m) && agreed[at(m)] != grid_->size[at(m)]) pair.needed |= 1U << m;
  const double shards = static_cast<double>(grid_->size_of(from.dims)) * grid_->size_of(to.dims);
  pair.common = conflict ? 0 : static_cast<double>(size_) * static_cast<double>(shared) / shards;
  return true;
}

namespace {

// Calls `meet(a, b, count)` for every stretch of positions, with its owners in both.
template <class Meet>
void each_stretch(const DimSharding& from, const DimSharding& to, const Meet& meet) {
  const ShardRange *a = from.by_position.data(), *b = to.by_position.data();
  const ShardRange *const a_end = a + from.by_position.size(), *const b_end =
                                                                   b + to.by_position.size();
  for (std::int64_t begin = 0; a != a_end && b != b_end;) {
    const std::int64_t end = std::min(a->end, b->end);
    meet(a->owner, b->owner, end - begin);
    if (a->end == end) ++a;
    if (b->end == end) ++b;
    begin = end;
  }
}

}  // namespace

void DimShardings::compare_ranges(const DimSharding& from, const DimSharding& to,
                                  ShardingPair& pair) const {
  unsigned differs = 0;
  each_stretch(from, to, [&](unsigned a, unsigned b, std::int64_t) { differs |= a ^ b; });
  for (int m = 0; m < grid_->ndim; ++m)
    if (has(from.dims, m) && (!has(to.dims, m) || (differs & grid_->bits_of(1U << m)) != 0))
      pair.needed |= 1U << m;
}

const std::vector<double>& DimShardings::by_rank(int from, int to) {
  ShardingPair& pair = slot(from, to);
  if (!pair.by_rank.empty()) return pair.by_rank;
  const DimSharding &a = with_ranges(from), &b = with_ranges(to);
  const unsigned both = grid_->bits_of(a.dims & b.dims);
  auto& counts = pair.by_rank;
  counts.resize(grid_->codes);
  each_stretch(a, b, [&](unsigned in_a, unsigned in_b, std::int64_t count) {
    if (((in_a ^ in_b) & both) == 0) counts[in_a | in_b] += static_cast<double>(count);
  });
  // Along the other dimensions all ranks have the same.
  for (int m = 0; m < grid_->ndim; ++m) {
    if (has(a.dims | b.dims, m)) continue;
    const std::size_t block = std::size_t{1} << grid_->shift[at(m)];
    const std::size_t next = block * std::bit_ceil(static_cast<unsigned>(grid_->size[at(m)]));
    for (std::size_t first = 0; first < counts.size(); first += next)
      for (int i = 1; i < grid_->size[at(m)]; ++i)
        std::copy_n(&counts[first], block, &counts[first + at(i) * block]);
  }
  return counts;
}

bool DimShardings::gathers(int from, int to, MeshDims dims) {
  return (*this)[to].dims == ((*this)[from].dims & ~dims) && (pair(from, to).needed & ~dims) == 0;
}

bool DimShardings::ascends(int id, MeshDims dims) {
  const DimSharding& sharding = (*this)[id];
  if (!sharding.even) {
    struct Seen {
      std::int64_t end = 0, before = 0;
      unsigned owner = 0;
    };
    std::unordered_map<unsigned, Seen> groups;
    const unsigned others = grid_->bits_of(sharding.dims & ~dims);
    for (const ShardRange& range : with_ranges(id).by_owner) {
      Seen& seen = groups[range.owner & others];
      if (range.owner != seen.owner) seen.before = seen.end;
      if (range.begin < seen.before) return false;
      seen.owner = range.owner;
      seen.end = range.end;
    }
    return true;
  }
  std::int64_t lowest = size_;
  for (const ShardDigit& digit : sharding.digits) {
    if (!has(dims, digit.mesh_dim)) continue;
    if (digit.weight >= lowest) return false;
    lowest = digit.weight;
  }
  std::int64_t fixed = 1;  // everything above is fixed
  for (const ShardDigit& digit : sharding.digits)
    if (digit.weight >= lowest) fixed *= digit.radix;
  return fixed == size_ / lowest;
}

}  // namespace coshard
