// Creates meshes from sizes, ranks and names, after checking them.
#include <algorithm>
#include <iostream>
#include <numeric>
#include <range/v3/view/chunk.hpp>
#include <set>

#include <coshard/dtensor/mesh/device_mesh.h>
#include <coshard/dtensor/mesh/spec.h>
#include <coshard/runtime/coro/rank_context.h>
#include <coshard/runtime/launch/world.h>
#include "runtime/coro/user_call.h"
#include "runtime/launch/rank_hosts.h"
#include "runtime/printable.h"

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
    CS_REQUIRE(product <= world.size(), what, ": shape ", text, " needs more ranks than the ",
               world.size(), " of the world");
  }
  CS_REQUIRE(product == static_cast<std::int64_t>(ranks.size()), what, ": shape ", text, " needs ",
             product, " ranks, got ", ranks.size());
  CS_REQUIRE(names.empty() || names.size() == shape.size(), what, ": ", names.size(),
             " names for the ", shape.size(), " dimensions of shape ", text);
  std::set<std::string> unique;
  for (const std::string& name : names) {
    CS_REQUIRE(!name.empty(), what, ": empty dimension name for shape ", text);
    CS_REQUIRE(unique.insert(name).second, what, ": duplicate dimension name '", name, "'");
  }
  std::set<int> seen;
  for (int rank : ranks) {
    CS_REQUIRE(rank >= 0 && rank < world.size(), what, ": rank ", rank, " is not one of the ",
               world.size(), " ranks of the world");
    CS_REQUIRE(seen.insert(rank).second, what, ": rank ", rank, " is listed twice");
  }
}

// Keeps a program that creates a mesh per step from accumulating them.
void forget_now_and_then() {
  constexpr int kOften = 64;
  static const RankLocal<int> made;
  if (++*made % kOften == 0) forget_dropped_meshes();
}

// All ranks; for a mesh of several dimensions, ranks of one host are adjacent.
std::vector<int> ranks_by_host(const World& world, const std::vector<int>& shape) {
  std::vector<int> ranks(static_cast<std::size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  const std::vector<int>& hosts = *hosts_of_ranks;
  if (hosts.empty() || std::ranges::count_if(shape, [](int size) { return size > 1; }) < 2)
    return ranks;
  std::ranges::stable_sort(ranks, {},
                           [&](int rank) { return hosts[static_cast<std::size_t>(rank)]; });
  return ranks;
}

// Warns, on rank 0 and once per shape, that the innermost dimension spans several hosts.
void warn_of_hosts(const DeviceMesh& mesh) {
  const std::vector<int>& hosts = *hosts_of_ranks;
  const auto inner = std::ranges::find_if(mesh.shape().rbegin(), mesh.shape().rend(),
                                          [](int size) { return size > 1; });
  if (mesh.world().rank() != 0 || hosts.empty() || *inner == mesh.size()) return;
  const auto on = [&](int rank) { return hosts[static_cast<std::size_t>(rank)]; };
  const bool together =
      std::ranges::all_of(mesh.ranks() | ranges::views::chunk(*inner), [&](auto line) {
        return std::ranges::all_of(line, [&](int rank) { return on(rank) == on(line.front()); });
      });
  static const RankLocal<std::set<std::string>> told;
  if (together || !told->insert(str_cat(mesh)).second) return;
  const auto dim = static_cast<std::size_t>(mesh.shape().rend() - inner) - 1;
  std::vector<int> sizes(static_cast<std::size_t>(*std::ranges::max_element(hosts)) + 1);
  for (const int host : hosts) ++sizes[static_cast<std::size_t>(host)];
  const auto [least, most] = std::ranges::minmax(sizes);
  const std::string each = least == most ? str_cat(most) : str_cat(least, " to ", most);
  std::cerr << str_cat("warning: init_device_mesh: dimension ", printable(mesh.names()[dim]), '=',
                       *inner, " of ", printable(str_cat(mesh)), " spans hosts, which have ", each,
                       " of the ranks each\n")
            << std::flush;
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
  std::vector<int> ranks = ranks_by_host(world, shape);
  check_mesh("init_device_mesh", world, ranks, shape, names);
  DeviceMesh mesh =
      DeviceMesh::from_ranks(world, std::move(ranks), std::move(shape), std::move(names));
  warn_of_hosts(mesh);
  return mesh;
}

}  // namespace coshard
