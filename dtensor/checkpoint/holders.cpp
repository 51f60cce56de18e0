#include "dtensor/checkpoint/holders.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "dtensor/checkpoint/agreement.h"

namespace coshard {
namespace {

int place_of(const std::vector<int>& ranks, int rank) {
  const auto at = std::ranges::find(ranks, rank);
  return at == ranks.end() ? -1 : static_cast<int>(at - ranks.begin());
}

Holding holding_of(const Tensor& tensor) {
  if (!tensor.is_distributed()) return {};
  return {tensor.mesh().shape(), tensor.mesh().ranks(), tensor.layout()};
}

// Each of `holdings` as numbers, once, then the number of that of each tensor.
class Packed {
 public:
  void add(const Holding& holding) {
    const auto known = std::ranges::find(known_, holding);
    of_tensors_.push_back(static_cast<int>(known - known_.begin()));
    if (known == known_.end()) known_.push_back(holding);
  }
  std::vector<int> numbers() const {
    std::vector<int> all{static_cast<int>(known_.size())};
    for (const Holding& holding : known_) {
      all.push_back(static_cast<int>(holding.mesh_shape.size()));
      all.insert(all.end(), holding.mesh_shape.begin(), holding.mesh_shape.end());
      all.push_back(static_cast<int>(holding.ranks.size()));
      all.insert(all.end(), holding.ranks.begin(), holding.ranks.end());
      for (const Placement& p : holding.layout) {
        all.push_back(p.is_strided() ? 2 : p.is_shard() ? 1 : 0);
        all.push_back(p.is_sharded() ? p.dim : 0);
        all.push_back(p.is_strided() ? p.split : 0);
        all.push_back(p.is_strided() ? p.unit : 0);
      }
    }
    all.insert(all.end(), of_tensors_.begin(), of_tensors_.end());
    return all;
  }

 private:
  std::vector<Holding> known_;
  std::vector<int> of_tensors_;
};

// The reverse: one for each of `tensors`.
std::vector<std::shared_ptr<const Holding>> unpacked(const int* next, std::size_t tensors) {
  std::vector<std::shared_ptr<const Holding>> known(static_cast<std::size_t>(*next++));
  for (std::shared_ptr<const Holding>& one : known) {
    Holding holding;
    const int dims = *next++;
    holding.mesh_shape.assign(next, next + dims);
    next += dims;
    const int ranks = *next++;
    holding.ranks.assign(next, next + ranks);
    next += ranks;
    for (int m = 0; m < dims; ++m, next += 4)
      holding.layout.push_back(next[0] == 2   ? StridedShard(next[1], next[2], next[3])
                               : next[0] == 1 ? Shard(next[1])
                                              : Replicate());
    one = std::make_shared<const Holding>(std::move(holding));
  }
  std::vector<std::shared_ptr<const Holding>> all;
  for (std::size_t i = 0; i < tensors; ++i) all.push_back(known[static_cast<std::size_t>(*next++)]);
  return all;
}

// Ranks of one mesh must say the same of it.
void require_alike(const std::vector<std::shared_ptr<const Holding>>& holdings, std::size_t number,
                   const Tensor& tensor) {
  for (std::size_t rank = 0; rank < holdings.size(); ++rank) {
    const Holding& mine = *holdings[rank];
    if (place_of(mine.ranks, static_cast<int>(rank)) < 0) continue;
    for (const int peer : mine.ranks)
      CS_REQUIRE(*holdings[static_cast<std::size_t>(peer)] == mine, "tensor number ", number, ", ",
                 tensor, " here, lies on another mesh or in another layout on rank ", peer,
                 " than on rank ", rank);
  }
}

}  // namespace

struct HeldTensor::Mesh {
  Mesh(std::shared_ptr<const Holding> of, const Shape& shape)
      : holding(std::move(of)), shard_map(holding->mesh_shape, shape) {
    parts.resize(std::max<std::size_t>(holding->ranks.size(), 1));
    for (int m = 0; m < holding->layout.ndim(); ++m)
      if (!holding->layout[m].is_sharded()) alike |= 1U << m;
  }
  std::shared_ptr<const Holding> holding;
  ShardMap shard_map;
  MeshDims alike = 0;                              // mesh dimensions along which all hold the same
  std::vector<std::unique_ptr<ByteRegion>> parts;  // by place
};

HeldTensor::HeldTensor(std::vector<std::shared_ptr<const Holding>> holdings, const Shape& shape,
                       std::int64_t element_bytes)
    : holdings_(std::move(holdings)), shape_(shape), element_bytes_(element_bytes) {}

HeldTensor::Mesh& HeldTensor::mesh_of(int rank) {
  const std::shared_ptr<const Holding>& holding = holdings_[static_cast<std::size_t>(rank)];
  for (const std::shared_ptr<Mesh>& known : meshes_)
    if (known->holding == holding || *known->holding == *holding) return *known;
  meshes_.push_back(std::make_shared<Mesh>(holding, shape_));
  return *meshes_.back();
}

const ByteRegion& HeldTensor::part(int rank) {
  static const ByteRegion nothing;
  Mesh& mesh = mesh_of(rank);
  const bool plain = mesh.holding->ranks.empty();
  const int place = plain ? 0 : place_of(mesh.holding->ranks, rank);
  if (place < 0) return nothing;
  std::unique_ptr<ByteRegion>& part = mesh.parts[static_cast<std::size_t>(place)];
  if (part != nullptr) return *part;
  Region region;
  if (plain)
    for (const std::int64_t size : shape_) region.push_back({{0, size}});
  else
    region = region_of(mesh.shard_map, mesh.holding->layout, place);
  part = std::make_unique<ByteRegion>(region, shape_, element_bytes_);
  return *part;
}

bool HeldTensor::gives(int rank, int writer) {
  Mesh& mesh = mesh_of(writer);
  if (mesh.holding->ranks.empty()) return rank == writer;
  const int place = place_of(mesh.holding->ranks, rank);
  if (place < 0) return false;
  const std::vector<int>& replicas = mesh.shard_map.group(place, mesh.alike);
  const int own = place_of(mesh.holding->ranks, writer);
  if (std::ranges::find(replicas, own) != replicas.end()) return place == own;
  return place == replicas[static_cast<std::size_t>(writer) % replicas.size()];
}

Task<std::vector<HeldTensor>> holders_of(World& world, std::vector<Tensor> tensors,
                                         std::vector<DType> types) {
  Packed packed;
  for (const Tensor& tensor : tensors) packed.add(holding_of(tensor));
  std::vector<int> numbers = packed.numbers();
  Task<std::vector<int>> measured =
      gather_numbers<int>(world, {static_cast<int>(numbers.size())}, "holders");
  const std::vector<int> sizes = co_await std::move(measured);
  const auto most = static_cast<std::size_t>(*std::ranges::max_element(sizes));
  numbers.resize(most);
  Task<std::vector<int>> told = gather_numbers<int>(world, std::move(numbers), "holders");
  const std::vector<int> all = co_await std::move(told);
  std::vector<std::vector<std::shared_ptr<const Holding>>> by_rank;
  for (std::size_t rank = 0; rank < sizes.size(); ++rank)
    by_rank.push_back(unpacked(all.data() + rank * most, tensors.size()));
  std::vector<HeldTensor> held;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    std::vector<std::shared_ptr<const Holding>> holdings;
    for (const auto& of_rank : by_rank) holdings.push_back(of_rank[i]);
    require_alike(holdings, i, tensors[i]);
    held.emplace_back(std::move(holdings), tensors[i].shape(),
                      static_cast<std::int64_t>(size_of(types[i])));
  }
  co_return held;
}

}  // namespace coshard
