#include "runtime/comm/collective.h"

#include <algorithm>
#include <functional>
#include <utility>

#include <coshard/runtime/error.h>

namespace coshard {
namespace {

bool is_flat(const Collective& c) { return c.send_counts != nullptr || c.recv_counts != nullptr; }

std::int64_t sum(const Counts& counts) {
  std::int64_t total = 0;
  for (std::int64_t count : *counts) total += count;
  return total;
}

void check_counts(const Collective& c, const Counts& counts, std::int64_t extent, int ranks,
                  std::string_view name) {
  if (counts == nullptr) {
    CS_REQUIRE(extent % ranks == 0, to_string(c.kind), ": ", name, " is null, but ", extent,
               " elements cannot be split evenly over ", ranks, " ranks", location_text(c));
    return;
  }
  CS_REQUIRE(counts->size() == static_cast<std::size_t>(ranks), to_string(c.kind), ": ", name,
             " has ", counts->size(), " entries for ", ranks, " ranks", location_text(c));
  for (std::int64_t count : *counts) {
    CS_REQUIRE(count >= 0, to_string(c.kind), ": ", name, " has the negative entry ", count,
               location_text(c));
  }
}

void check_buffers(const Collective& c, int ranks, int rank) {
  CS_REQUIRE(c.send != nullptr || send_elements(c, ranks, rank) == 0, to_string(c.kind),
             ": send is null for ", send_elements(c, ranks, rank), " elements", location_text(c));
  CS_REQUIRE(c.recv != nullptr || recv_elements(c, ranks, rank) == 0, to_string(c.kind),
             ": recv is null for ", recv_elements(c, ranks, rank), " elements", location_text(c));
}

std::string shape_text(const Counts& shape) {
  std::string text = "[";
  for (const std::int64_t size : *shape) {
    if (size < 0)
      text += "] [";
    else
      text += str_cat(text.back() == '[' ? "" : ",", size);
  }
  return text + "]";
}

// The tensor's shape, or its number of elements where that is unknown.
std::string elements_text(const Collective& c) {
  return c.shape != nullptr ? shape_text(c.shape) : str_cat("[", c.outer * c.extent * c.inner, "]");
}

std::string whole_text(const Collective& c) {
  return c.shape != nullptr ? str_cat(" of ", shape_text(c.shape)) : "";
}

std::string counts_text(const Counts& counts, std::int64_t extent, int ranks) {
  if (counts == nullptr) return str_cat(extent, "/", ranks);
  std::string text;
  for (std::size_t i = 0; i < counts->size(); ++i) text += str_cat(i ? "+" : "", (*counts)[i]);
  return text;
}

}  // namespace

std::string_view to_string(Reduce reduce) {
  switch (reduce) {
    case Reduce::Sum: return "sum";
    case Reduce::Avg: return "avg";
    case Reduce::Min: return "min";
    case Reduce::Max: return "max";
    case Reduce::Product: return "product";
  }
  return "?";
}

ShardExtent shard_extent(const Counts& counts, std::int64_t extent, int ranks, int rank) {
  if (counts == nullptr) return {extent / ranks, extent / ranks * rank, extent};
  ShardExtent cut;
  for (int r = 0; r < ranks; ++r) {
    const std::int64_t size = (*counts)[static_cast<std::size_t>(r)];
    if (r < rank) cut.offset += size;
    if (r == rank) cut.size = size;
    cut.total += size;
  }
  return cut;
}

std::int64_t send_elements(const Collective& c, int ranks, int rank) {
  const std::int64_t plane = c.outer * c.inner;
  switch (c.kind) {
    case CollectiveKind::AllReduce:
    case CollectiveKind::Send: return plane * c.extent;
    case CollectiveKind::Broadcast: return rank == c.root ? plane * c.extent : 0;
    case CollectiveKind::AllGather:
      return plane * shard_extent(c.counts, c.extent, ranks, rank).size;
    case CollectiveKind::ReduceScatter:
      return plane * shard_extent(c.counts, c.extent, ranks, rank).total;
    case CollectiveKind::Scatter:
      return rank == c.root ? plane * shard_extent(c.counts, c.extent, ranks, rank).total : 0;
    case CollectiveKind::AllToAll:
      if (is_flat(c)) return sum(c.send_counts);
      return plane * c.middle * shard_extent(c.counts, c.extent, ranks, rank).size *
             shard_extent(c.scatter_counts, c.scatter_extent, ranks, rank).total;
    case CollectiveKind::Barrier:
    case CollectiveKind::Recv: return 0;
  }
  return 0;
}

std::int64_t recv_elements(const Collective& c, int ranks, int rank) {
  const std::int64_t plane = c.outer * c.inner;
  switch (c.kind) {
    case CollectiveKind::AllReduce:
    case CollectiveKind::Recv:
    case CollectiveKind::Broadcast: return plane * c.extent;
    case CollectiveKind::AllGather:
      return plane * shard_extent(c.counts, c.extent, ranks, rank).total;
    case CollectiveKind::ReduceScatter:
    case CollectiveKind::Scatter: return plane * shard_extent(c.counts, c.extent, ranks, rank).size;
    case CollectiveKind::AllToAll:
      if (is_flat(c)) return sum(c.recv_counts);
      return plane * c.middle * shard_extent(c.counts, c.extent, ranks, rank).total *
             shard_extent(c.scatter_counts, c.scatter_extent, ranks, rank).size;
    case CollectiveKind::Barrier:
    case CollectiveKind::Send: return 0;
  }
  return 0;
}

std::int64_t larger_bytes(const Collective& c, int ranks, int rank) {
  const std::int64_t elements =
      std::max(send_elements(c, ranks, rank), recv_elements(c, ranks, rank));
  return elements * static_cast<std::int64_t>(size_of(c.dtype));
}

void check_reduction(const Collective& c) {
  if (!is_reduction(c.kind)) return;
  if (is_float8(c.dtype))
    fail(ErrorKind::Unsupported, str_cat(to_string(c.kind), ": nothing computes with ", c.dtype,
                                         ": reduce as bf16 or f32", location_text(c)));
  const bool extreme = c.reduce == Reduce::Min || c.reduce == Reduce::Max;
  CS_REQUIRE(c.dtype != DType::Bool || extreme, to_string(c.kind),
             ": bool supports min (and) and max (or), not ", to_string(c.reduce), location_text(c));
}

void check(const Collective& c, int ranks, int rank) {
  if (c.kind == CollectiveKind::Barrier) return;
  CS_REQUIRE(
      c.outer >= 0 && c.extent >= 0 && c.middle >= 0 && c.inner >= 0 && c.scatter_extent >= 0,
      to_string(c.kind), ": negative size among outer ", c.outer, ", extent ", c.extent,
      ", middle ", c.middle, ", scatter_extent ", c.scatter_extent, ", inner ", c.inner,
      location_text(c));
  CS_REQUIRE(c.root >= 0 && c.root < ranks, to_string(c.kind), ": root ", c.root,
             " is out of range for ", ranks, " ranks", location_text(c));
  check_reduction(c);
  if (is_point_to_point(c.kind)) {
    CS_REQUIRE(c.root != rank, to_string(c.kind), ": peer ", c.root,
               " is this rank; it must be another", location_text(c));
  } else if (c.kind == CollectiveKind::AllToAll && is_flat(c)) {
    CS_REQUIRE(c.send_counts != nullptr && c.recv_counts != nullptr,
               "all_to_all: give both send_counts and recv_counts, or neither", location_text(c));
    check_counts(c, c.send_counts, 0, ranks, "send_counts");
    check_counts(c, c.recv_counts, 0, ranks, "recv_counts");
  } else if (c.kind != CollectiveKind::AllReduce && c.kind != CollectiveKind::Broadcast) {
    check_counts(c, c.counts, c.extent, ranks, "counts");
    if (c.kind == CollectiveKind::AllToAll)
      check_counts(c, c.scatter_counts, c.scatter_extent, ranks, "scatter_counts");
  }
  check_buffers(c, ranks, rank);
}

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15U;  // 2^64 / golden ratio
  hash = (((hash + kOdd) * kOdd) ^ value) * kOdd;      // small hashes and values do not cancel out
  return hash ^ (hash >> 29);
}

std::uint64_t fingerprint(const Collective& c, int ranks) {
  std::uint64_t hash = mix(0x5bd1e995, static_cast<std::uint64_t>(c.kind));
  const auto add = [&hash](std::int64_t value) {
    hash = mix(hash, static_cast<std::uint64_t>(value));
  };
  if (is_launch(c)) add(c.extent), add(c.inner);
  if (c.kind == CollectiveKind::Barrier) return hash;
  const auto add_cuts = [&](const Counts& counts, std::int64_t extent) {
    for (int r = 0; r < ranks; ++r)
      add(counts ? (*counts)[static_cast<std::size_t>(r)] : extent / ranks);
  };
  add(static_cast<std::int64_t>(c.dtype));
  if (is_reduction(c.kind)) add(static_cast<std::int64_t>(c.reduce));
  if (c.shape != nullptr) {
    for (const std::int64_t size : *c.shape) add(size);
    add(static_cast<std::int64_t>(c.shape->size()));
  }
  switch (c.kind) {
    case CollectiveKind::Broadcast: add(c.root); [[fallthrough]];
    case CollectiveKind::AllReduce:
    case CollectiveKind::Send:
    case CollectiveKind::Recv: add(c.outer * c.extent * c.inner); return hash;
    case CollectiveKind::Scatter: add(c.root); break;
    case CollectiveKind::AllToAll:
      if (is_flat(c)) return hash;
      add(c.gather_first);
      add(c.middle);
      add_cuts(c.scatter_counts, c.scatter_extent);
      break;
    case CollectiveKind::AllGather: add(c.by_shards); break;
    default: break;
  }
  add(c.outer);
  add(c.inner);
  add_cuts(c.counts, c.extent);
  return hash;
}

std::vector<std::uint64_t> fingerprints(const std::vector<Collective>& launched, int ranks) {
  std::vector<std::uint64_t> all;
  for (const Collective& c : launched)
    all.push_back(
        mix(mix(fingerprint(c, ranks), std::hash<std::string_view>()(c.names)), c.branch));
  return all;
}

Collective launch_of(std::shared_ptr<const std::vector<Collective>> launched, int ranks) {
  Collective launch;
  launch.control_only = true;
  std::uint64_t hash = 0;
  for (const std::uint64_t one : fingerprints(*launched, ranks)) hash = mix(hash, one);
  launch.extent = static_cast<std::int64_t>(launched->size());
  launch.inner = static_cast<std::int64_t>(hash);
  launch.label = "captured step";
  launch.where = launched->front().where;
  launch.launched = std::move(launched);
  return launch;
}

bool flat_counts_agree(const Collective& from, int from_rank, const Collective& to, int to_rank) {
  if (from.kind != CollectiveKind::AllToAll) return true;
  if (is_flat(from) != is_flat(to)) return false;
  return !is_flat(from) || (*from.send_counts)[static_cast<std::size_t>(to_rank)] ==
                               (*to.recv_counts)[static_cast<std::size_t>(from_rank)];
}

std::string describe(const Collective& c, int ranks) {
  if (is_launch(c)) return str_cat("a launch of ", c.extent, " recorded collectives");
  std::string text(to_string(c.kind));
  if (c.kind == CollectiveKind::Barrier) return text;
  if (is_reduction(c.kind)) text += str_cat(" ", to_string(c.reduce));
  text += str_cat(" ", c.dtype);
  const std::string cut = counts_text(c.counts, c.extent, ranks);
  switch (c.kind) {
    case CollectiveKind::AllReduce: return str_cat(text, " ", elements_text(c));
    case CollectiveKind::Send: return str_cat(text, " ", elements_text(c), " to ", c.root);
    case CollectiveKind::Broadcast:
    case CollectiveKind::Recv: return str_cat(text, " ", elements_text(c), " from ", c.root);
    case CollectiveKind::Scatter:
      return str_cat(text, " [", c.outer, ", ", cut, ", ", c.inner, "]", whole_text(c), " from ",
                     c.root);
    case CollectiveKind::AllToAll:
      if (is_flat(c)) {
        return str_cat(text, " sends ", counts_text(c.send_counts, 0, ranks), " receives ",
                       counts_text(c.recv_counts, 0, ranks), whole_text(c));
      }
      return str_cat(text, " [", c.outer, ", ", cut, ", ", c.middle, ", ",
                     counts_text(c.scatter_counts, c.scatter_extent, ranks), ", ", c.inner, "]",
                     whole_text(c), c.gather_first ? "" : " gathers last");
    default:
      return str_cat(text, " [", c.outer, ", ", cut, ", ", c.inner, "]", whole_text(c),
                     c.by_shards ? " by shards" : "");
  }
}

std::string_view file_name_of(const CallSite& where) {
  const std::string_view file = where.file;
  return file.substr(file.rfind('/') + 1);
}

std::string location_of(const CallSite& where) {
  return str_cat(file_name_of(where), ":", where.line);
}

std::string location_text(const CallLocation& at) {
  std::string text;
  if (at.site.known()) text = str_cat(" at ", location_of(at.site));
  if (!at.operation.empty()) text += str_cat(text.empty() ? " in " : ", in ", at.operation);
  if (!at.module.empty()) text += str_cat(text.empty() ? " in module " : ", module ", at.module);
  return text;
}

}  // namespace coshard
