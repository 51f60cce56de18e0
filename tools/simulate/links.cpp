#include "tools/simulate/links.h"

#include <algorithm>
#include <limits>
#include <map>
#include <sstream>

#include <coshard/runtime/comm/link.h>
#include <coshard/runtime/error.h>
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

// The text of each dimension's link. A part without "=" continues the previous one:
// "tp=20us,1GB/s".
std::map<std::string, std::string> texts_of(const std::vector<MeshDim>& mesh,
                                            const std::string& text) {
  std::map<std::string, std::string> texts;
  if (text.find('=') == std::string::npos) {
    for (const MeshDim& dim : mesh) texts[dim.name] = text;
    return texts;
  }
  std::string* last = nullptr;
  for (const std::string& part : split(text, ',')) {
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos) {
      CS_REQUIRE(last != nullptr, "--link ", text, ": expected DIMENSION=LINK, got ", shown(part));
      *last += "," + part;
      continue;
    }
    const std::string name = part.substr(0, equals);
    CS_REQUIRE(std::ranges::any_of(mesh, [&](const MeshDim& d) { return d.name == name; }),
               "--link ", text, ": the mesh ", to_string(mesh), " has no dimension ", shown(name));
    CS_REQUIRE(!texts.contains(name), "--link ", text, ": ", name, " is given twice");
    last = &(texts[name] = part.substr(equals + 1));
  }
  for (const MeshDim& dim : mesh)
    CS_REQUIRE(texts.contains(dim.name), "--link ", text, ": no link for ", dim.name);
  return texts;
}

bool is_rate(const std::string& text) { return text.ends_with("B/s"); }

// "20us,1GB/s", a link that is the same within and between nodes.
LinkModel given_link(const std::string& text) {
  const Link link = parse_link(text);
  return {text, {{static_cast<double>(link.latency.count()), 0, link.bytes_per_second}}};
}

double rate_of(const std::string& link) {
  return is_rate(link) ? parse_link(link).bytes_per_second : link_figures(link)["gbps"] * 1e9;
}

std::vector<LinkProtocol> protocols_of(const Figures& link) {
  std::vector<LinkProtocol> all{{link["base_us"] * 1e3, link["step_us"] * 1e3, link["gbps"] * 1e9}};
  if (link.has("small_gbps"))
    all.push_back(
        {link["small_base_us"] * 1e3, link["small_step_us"] * 1e3, link["small_gbps"] * 1e9});
  return all;
}

// Steps within a node take the GPU's own link, if it is known.
LinkModel model_of(const Figures& link, const DimLink& dim, const std::string& own) {
  std::vector<LinkProtocol> protocols = protocols_of(link);
  if (link["crosses_nodes"] != 0 && dim.nodes > 1 && dim.per_node > 1) {
    const double steps = dim.dim.size - 1, across = dim.nodes - 1;
    const double within = is_rate(own) ? 0 : link_figures(own)["step_us"] * 1e3;
    for (LinkProtocol& one : protocols) {
      one.rate = std::max(one.rate, std::min(one.rate * dim.per_node, rate_of(own)));
      one.step_ns =
          (across * one.step_ns + (steps - across) * std::min(within, one.step_ns)) / steps;
    }
  }
  return {link.name, std::move(protocols)};
}

// Counts nodes and ranks per node for the ranks along the dimension that include rank 0.
void place(DimLink& dim, int stride, int gpus_per_node) {
  std::int64_t last = -1;
  dim.per_node = dim.nodes = 0;
  for (std::int64_t i = 0; i < dim.dim.size; ++i) {
    const std::int64_t node = i * stride / gpus_per_node;
    if (node == 0) ++dim.per_node;
    if (node != last) ++dim.nodes;
    last = node;
  }
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

MeshLinks links_of(const std::vector<MeshDim>& mesh, const std::string& text,
                   const std::string& gpu, int gpus_per_node) {
  const std::string own = own_link(gpu);
  const auto texts = text.empty() ? std::map<std::string, std::string>() : texts_of(mesh, text);
  MeshLinks links;
  int stride = ranks_of(mesh);
  for (const MeshDim& each : mesh) {
    DimLink dim;
    dim.dim = each;
    stride /= each.size;
    place(dim, stride, gpus_per_node);
    const std::string link = !text.empty()                    ? texts.at(each.name)
                             : is_rate(own) || dim.nodes == 1 ? own
                                                              : "ndr";
    if (is_rate(link)) {
      dim.model = given_link(link);
    } else {
      const Figures figures = link_figures(link);
      CS_REQUIRE(dim.nodes == 1 || figures["crosses_nodes"] != 0, "--link ", each.name, "=", link,
                 ": ", each.name, "=", each.size, " spans ", dim.nodes, " nodes of ", gpus_per_node,
                 " GPUs, and ", link, " joins those of one");
      dim.model = model_of(figures, dim, own);
      if (std::ranges::none_of(links.figures, [&](const auto& f) { return f.name == link; }))
        links.figures.push_back(figures);
    }
    links.dims.push_back(std::move(dim));
  }
  return links;
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
