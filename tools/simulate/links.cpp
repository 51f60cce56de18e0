#include "tools/simulate/links.h"

#include <algorithm>
#include <limits>
#include <map>
#include <sstream>

#include <coshard/runtime/cost/link.h>
#include <coshard/runtime/error.h>
#include "profiling/input_file.h"
#include "runtime/near_miss.h"
#include "runtime/parse_number.h"

namespace coshard::tools {
namespace {

constexpr int kMostRanks = 1'000'000;

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream in(text + at);
  for (std::string part; std::getline(in, part, at);) parts.push_back(part);
  return parts;
}

std::map<std::string, std::string> texts_of(const std::vector<MeshDim>& mesh,
                                            const std::string& text) {
  std::map<std::string, std::string> texts;
  if (text.find('=') == std::string::npos) {
    for (const MeshDim& dim : mesh) texts[dim.name] = text;
    return texts;
  }
  for (const std::string& part : split_links(text)) {
    const std::size_t equals = part.find('=');
    CS_REQUIRE(equals != part.npos, "--link ", text, ": expected DIMENSION=LINK, got ",
               shown(part.substr(0, part.find(','))));
    const std::string name = part.substr(0, equals);
    CS_REQUIRE(std::ranges::any_of(mesh, [&](const MeshDim& d) { return d.name == name; }),
               "--link ", text, ": the mesh ", to_string(mesh), " has no dimension ", shown(name));
    CS_REQUIRE(!texts.contains(name), "--link ", text, ": ", name, " is given twice");
    texts[name] = part.substr(equals + 1);
  }
  for (const MeshDim& dim : mesh)
    CS_REQUIRE(texts.contains(dim.name), "--link ", text, ": no link for ", dim.name);
  return texts;
}

// "20us,1GB/s", a link that is the same within and between nodes. Equal ones have equal names.
Figures rate_figures(const std::string& text) {
  const Link link = parse_link(text);
  std::string name = to_string(link);
  if (link.latency == 0) name = name.substr(name.find(',') + 1);
  const std::string given = "as given";
  return {"rate",
          name,
          {{"gbps", link.bytes_per_us / 1e3, given},
           {"base_us", link.latency, given},
           {"step_us", 0, given},
           {"crosses_nodes", 1, given}}};
}

Figures read_link(const std::string& text) {
  return text.ends_with("B/s") ? rate_figures(text) : link_figures(text);
}

bool is_file(const Figures& link) {
  return link.kind != "rate" && std::ranges::count(link_presets(), link.name) == 0;
}

// A file is read once, whatever its spellings.
const Figures* same_link(const GivenLinks& read, const std::string& text) {
  for (const auto& [dim, link] : read.of)
    if (link.name == text || (is_file(link) && is_same_file(link.name, text))) return &link;
  return nullptr;
}

std::vector<LinkProtocol> protocols_of(const Figures& link) {
  std::vector<LinkProtocol> all{{link["base_us"] * 1e3, link["step_us"] * 1e3, link["gbps"] * 1e9}};
  if (link.has("small_gbps"))
    all.push_back(
        {link["small_base_us"] * 1e3, link["small_step_us"] * 1e3, link["small_gbps"] * 1e9});
  return all;
}

// Steps within a node take the GPU's own link.
LinkModel model_of(const Figures& link, const DimLink& dim, const Figures& own) {
  std::vector<LinkProtocol> protocols = protocols_of(link);
  if (link.kind != "rate" && link["crosses_nodes"] != 0 && dim.nodes > 1 && dim.per_node > 1) {
    const double steps = dim.dim.size - 1, across = dim.nodes - 1;
    const double within = own["step_us"] * 1e3;
    for (LinkProtocol& one : protocols) {
      one.rate = std::max(one.rate, std::min(one.rate * dim.per_node, own["gbps"] * 1e9));
      one.step_ns =
          (across * one.step_ns + (steps - across) * std::min(within, one.step_ns)) / steps;
    }
  }
  return {link.name, std::move(protocols)};
}

// Counts the nodes and ranks per node of the group whose first rank has this place in its node.
void place_group(DimLink& dim, std::int64_t first, std::int64_t stride, int gpus_per_node) {
  int nodes = 0, here = 0;
  for (std::int64_t i = 0, last = -1; i < dim.dim.size; ++i) {
    const std::int64_t node = (first + i * stride) / gpus_per_node;
    if (node != last) {
      if (here > 0) dim.per_node = std::min(dim.per_node, here);
      ++nodes, here = 0;
    }
    ++here, last = node;
  }
  dim.per_node = std::min(dim.per_node, here);
  dim.nodes = std::max(dim.nodes, nodes);
}

// Groups whose first ranks have the same place in their nodes lie alike: at most one group per
// place is counted, and no rank of the mesh twice.
DimLink placed(const MeshDim& of, std::int64_t stride, int ranks, int gpus_per_node) {
  DimLink dim;
  dim.dim = of;
  dim.per_node = of.size;
  std::vector<bool> seen(static_cast<std::size_t>(std::min(ranks, gpus_per_node)));
  for (std::int64_t block = 0; block < ranks; block += stride * of.size)
    for (std::int64_t first = block; first < block + stride; ++first) {
      const std::int64_t place = first % gpus_per_node;
      if (seen[static_cast<std::size_t>(place)]) continue;
      seen[static_cast<std::size_t>(place)] = true;
      place_group(dim, place, stride, gpus_per_node);
    }
  return dim;
}

std::vector<DimLink> placed(const std::vector<MeshDim>& mesh, int gpus_per_node) {
  std::vector<DimLink> dims;
  const int ranks = ranks_of(mesh);
  std::int64_t stride = ranks;
  for (const MeshDim& each : mesh) {
    stride /= each.size;
    dims.push_back(placed(each, stride, ranks, gpus_per_node));
  }
  return dims;
}

Figures link_for(const DimLink& dim, const GivenLinks& given) {
  if (const auto found = given.of.find(dim.dim.name); found != given.of.end()) return found->second;
  return given.own.kind == "rate" || dim.nodes == 1 ? given.own : link_figures("ndr");
}

bool joins(const Figures& link, const DimLink& dim) {
  return dim.nodes == 1 || link["crosses_nodes"] != 0;
}

}  // namespace

std::vector<MeshDim> parse_mesh_dims(const std::string& text) {
  std::vector<MeshDim> mesh;
  for (const std::string& part : split(text, ',')) {
    const std::size_t equals = part.find('=');
    CS_REQUIRE(equals != std::string::npos, "--mesh ", shown(text), ": expected dp=N,tp=N, got ",
               shown(part));
    const std::string name = part.substr(0, equals);
    CS_REQUIRE(name == "dp" || name == "tp", "--mesh ", text, ": unknown dimension ", shown(name),
               ", expected dp or tp");
    for (const MeshDim& known : mesh)
      CS_REQUIRE(known.name != name, "--mesh ", text, ": ", name, " is given twice");
    mesh.push_back({name, parse_number<int>("--mesh " + text + ": " + name, part.substr(equals + 1),
                                            1, kMostRanks)});
  }
  std::int64_t ranks = 1;
  for (const MeshDim& dim : mesh) ranks *= dim.size;
  CS_REQUIRE(ranks <= kMostRanks, "--mesh ", text, ": ", ranks, " ranks are more than ",
             kMostRanks);
  return mesh;
}

int ranks_of(const std::vector<MeshDim>& mesh) {
  int ranks = 1;
  for (const MeshDim& dim : mesh) ranks *= dim.size;
  return ranks;
}

int size_of_dim(const std::vector<MeshDim>& mesh, const std::string& name) {
  for (const MeshDim& dim : mesh)
    if (dim.name == name) return dim.size;
  return 1;
}

std::string to_string(const std::vector<MeshDim>& mesh) {
  std::string text;
  for (const MeshDim& dim : mesh) text += str_cat(text.empty() ? "" : ",", dim.name, '=', dim.size);
  return text;
}

std::vector<std::string> split_links(const std::string& text) {
  std::vector<std::string> links;
  for (const std::string& part : split(text, ',')) {
    if (links.empty() || part.find('=') != part.npos)
      links.push_back(part);
    else
      links.back() += "," + part;
  }
  return links;
}

GivenLinks given_links(const std::vector<MeshDim>& mesh, const std::string& text,
                       const std::string& gpu) {
  GivenLinks given;
  given.own = read_link(own_link(gpu));
  if (text.empty()) return given;
  for (const auto& [dim, link] : texts_of(mesh, text)) {
    const Figures* known = same_link(given, link);
    given.of[dim] = known != nullptr ? *known : read_link(link);
  }
  return given;
}

MeshLinks links_of(const std::vector<MeshDim>& mesh, const GivenLinks& given, int gpus_per_node) {
  MeshLinks links;
  for (DimLink& dim : placed(mesh, gpus_per_node)) {
    const Figures link = link_for(dim, given);
    CS_REQUIRE(joins(link, dim), "--link ", dim.dim.name, "=", link.name, ": ", dim.dim.name, "=",
               dim.dim.size, " spans ", dim.nodes, " nodes of ", gpus_per_node, " GPUs, and ",
               link.name, " joins those of one");
    dim.model = model_of(link, dim, given.own);
    if (link.kind != "rate" &&
        std::ranges::none_of(links.figures, [&](const auto& f) { return f.name == link.name; }))
      links.figures.push_back(link);
    links.dims.push_back(std::move(dim));
  }
  return links;
}

bool links_join(const std::vector<MeshDim>& mesh, const GivenLinks& given, int gpus_per_node) {
  return std::ranges::all_of(placed(mesh, gpus_per_node),
                             [&](const DimLink& dim) { return joins(link_for(dim, given), dim); });
}

const LinkModel& link_named(const MeshLinks& links, const std::string& name) {
  const DimLink* slowest = nullptr;
  for (const DimLink& dim : links.dims) {
    if (dim.dim.name == name) return dim.model;
    if (slowest == nullptr || dim.model.best_rate() < slowest->model.best_rate()) slowest = &dim;
  }
  return slowest->model;
}

}  // namespace coshard::tools
