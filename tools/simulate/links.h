#pragma once
// The link that each dimension of a mesh uses. Pure functions.
#include <map>
#include <string>
#include <vector>

#include "runtime/cost/link_model.h"
#include "tools/simulate/figures.h"

namespace coshard::tools {

struct MeshDim {
  std::string name;
  int size = 1;
  bool operator==(const MeshDim&) const = default;
};
// "dp=32,tp=8": dimensions dp and tp, each at most once, in any order; ranks are row-major.
// Error{BadInput} names the text.
std::vector<MeshDim> parse_mesh_dims(const std::string& text);
int ranks_of(const std::vector<MeshDim>& mesh);
int size_of_dim(const std::vector<MeshDim>& mesh, const std::string& name);  // 1 if it has none
std::string to_string(const std::vector<MeshDim>& mesh);

// "dp=20us,1GB/s,tp=1GB/s": a link each. A part without "=" continues the one before.
std::vector<std::string> split_links(const std::string& text);

// The links of --link, each file read once, for any sizes of the dimensions.
struct GivenLinks {
  std::map<std::string, Figures> of;  // by dimension; none: own within a node, else ndr
  Figures own;                        // between the GPUs of a node
};
// `text`: one link for all dimensions, or "tp=nvlink4,dp=ndr": presets, files, or a latency and a
// rate ("20us,1GB/s"; the latency is optional). "": within a node the GPU's own link, between nodes
// ndr. Error{BadInput}: an unknown link or dimension; a dimension without a link.
GivenLinks given_links(const std::vector<MeshDim>& mesh, const std::string& text,
                       const std::string& gpu);

// The link of one dimension, for the slowest of its groups.
struct DimLink {
  MeshDim dim;
  // Of a group's ranks: the fewest on a node, and the most nodes.
  int per_node = 1, nodes = 1;
  LinkModel model;
};

struct MeshLinks {
  std::vector<DimLink> dims;     // in the order of the mesh
  std::vector<Figures> figures;  // of the links in use, each once
};

// A collective over several GPUs of a node uses all their NICs, up to the rate of the GPU's own
// link. Error{BadInput}: a link within a node for ranks on several nodes.
MeshLinks links_of(const std::vector<MeshDim>& mesh, const GivenLinks& given, int gpus_per_node);

// Whether each dimension's link joins all ranks of its groups: one within a node joins no others.
bool links_join(const std::vector<MeshDim>& mesh, const GivenLinks& given, int gpus_per_node);

// The link of a mesh's communicator, by name; for others (the world) that of the slowest dimension.
const LinkModel& link_named(const MeshLinks& links, const std::string& name);

}  // namespace coshard::tools
