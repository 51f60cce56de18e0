#include "tests/dtensor/redistribute/held_positions.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace coshard::oracle {
namespace {

// The shard `i` of `n` of a list, as torch.chunk cuts it if an element is `unit` of them.
std::vector<int> chunk_of(const std::vector<int>& list, int n, int i, int unit = 1) {
  const std::size_t parts = static_cast<std::size_t>(n), part = static_cast<std::size_t>(i);
  std::size_t each = 0;
  while (each * parts < list.size()) each += static_cast<std::size_t>(unit);
  const auto at = [&](std::size_t chunk) {
    return list.begin() + static_cast<std::ptrdiff_t>(std::min(chunk * each, list.size()));
  };
  return {at(part), at(part + 1)};
}

// The i-th of n shards of each of `split` chunks.
std::vector<int> strided_shard_of(const std::vector<int>& list, Split cut, int n, int i) {
  std::vector<int> shard;
  for (int c = 0; c < cut.split; ++c) {
    const std::vector<int> piece = chunk_of(chunk_of(list, cut.split, c), n, i, cut.unit);
    shard.insert(shard.end(), piece.begin(), piece.end());
  }
  return shard;
}

// table[i][j], where `unknown` fills what is new.
template <class Table, class Value = typename Table::value_type::value_type>
Value& entry(Table& table, int i, int j, const Value& unknown) {
  const std::size_t row = static_cast<std::size_t>(i), column = static_cast<std::size_t>(j);
  if (row >= table.size()) table.resize(row + 1);
  if (column >= table[row].size()) table[row].resize(column + 1, unknown);
  return table[row][column];
}

}  // namespace

Ranks::Ranks(std::vector<int> mesh) : mesh_(std::move(mesh)) {
  for (int n : mesh_) count_ *= n;
  for (MeshDims dims = 0; dims <= all(); ++dims) {
    std::vector<int>& first = first_.emplace_back();
    for (int rank = 0; rank < count_; ++rank) {
      int at = 0;
      for (int m = 0; m < this->dims(); ++m)
        at = at * mesh_[index(m)] + (has(dims, m) ? 0 : coordinate(rank, m));
      first.push_back(at);
    }
  }
}

int Ranks::coordinate(int rank, int m) const {
  for (int inner = dims() - 1; inner > m; --inner) rank /= mesh_[index(inner)];
  return rank % mesh_[index(m)];
}

int Ranks::group_size(MeshDims dims) const {
  int size = 1;
  for (int m = 0; m < this->dims(); ++m)
    if (has(dims, m)) size *= mesh_[index(m)];
  return size;
}

HeldPositions::HeldPositions(const Ranks& ranks, std::int64_t size)
    : ranks_(ranks), size_(static_cast<int>(size)), words_((index(size_) + 63) / 64) {}

std::vector<int> HeldPositions::positions_of(const Splits& splits, int rank) const {
  std::vector<int> list(index(size_));
  std::iota(list.begin(), list.end(), 0);
  for (int m = 0; m < ranks_.dims(); ++m)
    if (const Split cut = splits[index(m)]; cut.split > 0)
      list = strided_shard_of(list, cut, ranks_.mesh()[index(m)], ranks_.coordinate(rank, m));
  return list;
}

int HeldPositions::of(const Splits& splits) {
  const auto known = by_splits_.find(splits);
  if (known != by_splits_.end()) return known->second;
  Sets sets(words_ * index(ranks_.count()));
  for (int rank = 0; rank < ranks_.count(); ++rank)
    for (int p : positions_of(splits, rank))
      sets[index(rank) * words_ + index(p) / 64] |= std::uint64_t{1} << (p % 64);
  return by_splits_[splits] = interned(std::move(sets));
}

int HeldPositions::interned(Sets sets) {
  const auto [entry, is_new] = ids_.try_emplace(std::move(sets), static_cast<int>(sets_.size()));
  if (!is_new) return entry->second;
  sets_.push_back(&entry->first);
  joined_.emplace_back(ranks_.all() + 1, -1);
  ordered_.emplace_back(ranks_.all() + 1, -1);
  std::vector<double>& counts = counts_.emplace_back(index(ranks_.count()));
  for (std::size_t i = 0; i < entry->first.size(); ++i)
    counts[i / words_] += std::popcount(entry->first[i]);
  return entry->second;
}

int HeldPositions::joined(int id, MeshDims dims) {
  if (joined_[index(id)][dims] >= 0) return joined_[index(id)][dims];
  const Sets& sets = *sets_[index(id)];
  Sets together(sets.size());
  const auto group_at = [&](std::size_t i) {
    const int rank = static_cast<int>(i / words_);
    return index(ranks_.first_of_group(rank, dims)) * words_ + i % words_;
  };
  for (std::size_t i = 0; i < sets.size(); ++i) together[group_at(i)] |= sets[i];
  for (std::size_t i = 0; i < sets.size(); ++i) together[i] = together[group_at(i)];
  const int joint = interned(std::move(together));
  return joined_[index(id)][dims] = joint;
}

bool HeldPositions::in_rank_order(int id, MeshDims dims) {
  int& known = ordered_[index(id)][dims];
  if (known < 0) known = is_ordered(*sets_[index(id)], dims) ? 1 : 0;
  return known == 1;
}

bool HeldPositions::is_ordered(const Sets& sets, MeshDims dims) const {
  std::vector<int> end(index(ranks_.count()));  // [first of the group]
  for (int rank = 0; rank < ranks_.count(); ++rank) {
    int& previous_end = end[index(ranks_.first_of_group(rank, dims))];
    int after = previous_end;
    for (int p = 0; p < size_; ++p) {
      const std::uint64_t word = sets[index(rank) * words_ + index(p) / 64];
      if ((word >> (p % 64) & 1) == 0) continue;
      if (p < previous_end) return false;
      after = p + 1;
    }
    previous_end = after;
  }
  return true;
}

bool HeldPositions::includes(int id, int other) const {
  const Sets &all = *sets_[index(id)], &part = *sets_[index(other)];
  for (std::size_t i = 0; i < all.size(); ++i)
    if ((part[i] & ~all[i]) != 0) return false;
  return true;
}

MeshDims HeldPositions::needed(int held, int wanted) {
  if (const int known = entry(needed_, held, wanted, -1); known >= 0)
    return static_cast<MeshDims>(known);
  MeshDims fewest = ranks_.all();
  for (MeshDims dims = 0; dims <= ranks_.all(); ++dims)
    if (std::popcount(dims) < std::popcount(fewest) && includes(joined(held, dims), wanted))
      fewest = dims;
  entry(needed_, held, wanted, -1) = static_cast<int>(fewest);
  return fewest;
}

const std::vector<double>& HeldPositions::kept(int held, int wanted) {
  std::vector<double>& kept = entry(kept_, held, wanted, {});
  if (!kept.empty()) return kept;
  kept.resize(index(ranks_.count()));
  const Sets &have = *sets_[index(held)], &want = *sets_[index(wanted)];
  for (std::size_t i = 0; i < have.size(); ++i)
    if (const std::uint64_t both = have[i] & want[i]; both != 0)
      kept[i / words_] += std::popcount(both);
  return kept;
}

}  // namespace coshard::oracle
