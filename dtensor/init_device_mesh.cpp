// Meshes made from sizes, ranks and names, which are checked.
#include <numeric>
#include <set>

#include <coshard/dtensor/device_mesh.h>
#include <coshard/dtensor/spec.h>
#include <coshard/runtime/coro/rank_context.h>
#include <coshard/runtime/launch/world.h>
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

std::string mesh_shape_text(const std::vector<int>& values) {
  std::string text;
  for (int value : values) text += (text.empty() ? "" : ",") + std::to_string(value);
  return "(" + text + ")";
}

void check_mesh(const char* what, const World& world, const std::vector<int>& ranks,
                const std::vector<int>& shape, const std::vector<std::string>& names) {
  const std::string text = mesh_shape_text(shape);
  CS_REQUIRE(!shape.empty(), what, ": a mesh needs at least one dimension");
  CS_REQUIRE(shape.size() <= kMaxMeshDims, what, ": shape ", text, " has more than ", kMaxMeshDims,
             " dimensions");
  std::int64_t product = 1;
  for (int size : shape) {
    CS_REQUIRE(size >= 1, what, ": size ", size, " in shape ", text);
    product *= size;
    CS_REQUIRE(product <= world.size(), what, ": shape ", text, " has more places than the ",
               world.size(), " ranks of the world");
  }
  CS_REQUIRE(product == static_cast<std::int64_t>(ranks.size()), what, ": shape ", text, " has ",
             product, " places for ", ranks.size(), " ranks");
  CS_REQUIRE(names.empty() || names.size() == shape.size(), what, ": ", names.size(),
             " names for the ", shape.size(), " dimensions of shape ", text);
  std::set<std::string> unique;
  for (const std::string& name : names) {
    CS_REQUIRE(!name.empty(), what, ": an empty dimension name for shape ", text);
    CS_REQUIRE(unique.insert(name).second, what, ": the dimension name '", name, "' repeats");
  }
  std::set<int> seen;
  for (int rank : ranks) {
    CS_REQUIRE(rank >= 0 && rank < world.size(), what, ": rank ", rank, " is not one of the ",
               world.size(), " ranks of the world");
    CS_REQUIRE(seen.insert(rank).second, what, ": rank ", rank, " comes twice");
  }
}

// Programs that make a mesh in each step are not to keep them all.
void forget_now_and_then() {
  constexpr int kOften = 64;
  static const RankLocal<int> made;
  if (++*made % kOften == 0) forget_dropped_meshes();
}

}  // namespace

DeviceMesh DeviceMesh::from_ranks(World& world, std::vector<int> ranks, std::vector<int> shape,
                                  std::vector<std::string> names, CallSite site) {
  const UserCall user(site);
  forget_now_and_then();
  check_mesh("from_ranks", world, ranks, shape, names);
  if (names.empty())
    for (std::size_t d = 0; d < shape.size(); ++d) names.push_back("dim_" + std::to_string(d));
  return rooted(world, std::move(ranks), std::move(shape), std::move(names));
}

DeviceMesh init_device_mesh(World& world, std::vector<int> shape, std::vector<std::string> names,
                            CallSite site) {
  const UserCall user(site);
  std::vector<int> ranks(static_cast<std::size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  check_mesh("init_device_mesh", world, ranks, shape, names);
  return DeviceMesh::from_ranks(world, std::move(ranks), std::move(shape), std::move(names));
}

}  // namespace coshard
