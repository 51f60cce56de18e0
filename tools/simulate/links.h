#pragma once
// The link that each dimension of a mesh uses. Pure functions.
#include <string>
#include <vector>

#include "runtime/device/sim/link_model.h"
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

// The link of one dimension.
struct DimLink {
  MeshDim dim;
  int per_node = 1, nodes = 1;  // of its ranks: per node, and on how many nodes
  LinkModel model;
};

struct MeshLinks {
  std::vector<DimLink> dims;     // in the order of the mesh
  std::vector<Figures> figures;  // of the links in use, each once
};

// `text`: one link for all dimensions, or "tp=nvlink4,dp=ndr": presets, files, or a latency and a
// rate ("20us,1GB/s"; the latency is optional). "": within a node the GPU's own link, between nodes
// ndr. A collective over several GPUs of a node uses all their NICs, up to the rate of the GPU's
// own link. Error{BadInput}: an unknown link or dimension; a dimension without a link; a link
// within a node for ranks on several nodes.
MeshLinks links_of(const std::vector<MeshDim>& mesh, const std::string& text,
                   const std::string& gpu, int gpus_per_node);

// The link of a mesh's communicator, by name; for others (the world) that of the slowest dimension.
const LinkModel& link_named(const MeshLinks& links, const std::string& name);

}  // namespace coshard::tools
