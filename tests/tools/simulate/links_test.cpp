#include "tools/simulate/links.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include <coshard/runtime/error.h>
#include "tests/support/json.h"

namespace coshard::tools {
namespace {

MeshLinks links(const std::string& mesh, const std::string& text, int gpus_per_node = 8,
                const std::string& gpu = "h100") {
  const std::vector<MeshDim> dims = parse_mesh_dims(mesh);
  return links_of(dims, given_links(dims, text, gpu), gpus_per_node);
}

void expect_refused(const std::string& mesh, const std::string& text, const std::string& named) {
  try {
    links(mesh, text);
    ADD_FAILURE() << mesh << ' ' << text << " was taken";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(named), std::string::npos) << error.what();
  }
}

TEST(Links, AreTheGpusOwnWithinANodeAndNdrBetweenThem) {
  const MeshLinks found = links("dp=32,tp=8", "");
  EXPECT_EQ(found.dims[0].model.name, "ndr");
  EXPECT_EQ(found.dims[0].nodes, 32);
  EXPECT_EQ(found.dims[0].per_node, 1);
  EXPECT_EQ(found.dims[0].model.best_rate(), 45e9);
  EXPECT_EQ(found.dims[1].model.name, "nvlink4");
  EXPECT_EQ(found.dims[1].per_node, 8);
  EXPECT_EQ(links("tp=8", "", 8, "b200").dims[0].model.name, "nvlink5");
  EXPECT_EQ(links("tp=8", "", 8, "ideal").dims[0].model.best_rate(), 365e9);
}

TEST(Links, OfSeveralGpusOfANodeUseTheirNicsTogether) {
  EXPECT_EQ(links("dp=16,tp=4", "").dims[0].per_node, 2);
  EXPECT_EQ(links("dp=16,tp=4", "").dims[0].model.best_rate(), 90e9);
  EXPECT_EQ(links("dp=32", "").dims[0].model.best_rate(), 8 * 45e9);
  EXPECT_EQ(links("dp=72", "ndr", 36, "b200").dims[0].model.best_rate(), 731e9);  // nvlink5's
}

// Ranks 6 to 11 lie on two nodes of 8, though ranks 0 to 5 lie on one.
TEST(Links, AreThoseOfTheSlowestGroup) {
  const MeshLinks straddling = links("dp=4,tp=6", "");
  EXPECT_EQ(straddling.dims[1].model.name, "ndr");
  EXPECT_EQ(straddling.dims[1].nodes, 2);
  EXPECT_EQ(straddling.dims[1].per_node, 2);
  EXPECT_EQ(straddling.dims[1].model.best_rate(), 2 * 45e9);
  const MeshLinks uneven = links("dp=8,tp=3", "", 4);  // ranks 0, 3 on node 0, rank 6 on node 1
  EXPECT_EQ(uneven.dims[0].per_node, 1);
  EXPECT_EQ(uneven.dims[0].model.best_rate(), 45e9);
  expect_refused("dp=4,tp=6", "tp=nvlink4,dp=ndr", "tp=6 spans 2 nodes of 8 GPUs");
}

TEST(Links, LieAsTheNodesOfAllGroupsSay) {
  for (const int tp : {1, 2, 3, 5, 6, 8})
    for (const int dp : {1, 2, 7, 8, 12})
      for (const int gpus_per_node : {1, 3, 4, 8, 9, 1000}) {
        const MeshLinks found = links(str_cat("dp=", dp, ",tp=", tp), "", gpus_per_node);
        for (const bool is_tp : {false, true}) {
          int most_nodes = 0, fewest = is_tp ? tp : dp;
          for (int group = 0; group < (is_tp ? dp : tp); ++group) {
            std::map<int, int> on_node;
            for (int i = 0; i < (is_tp ? tp : dp); ++i)
              ++on_node[(is_tp ? group * tp + i : i * tp + group) / gpus_per_node];
            most_nodes = std::max(most_nodes, static_cast<int>(on_node.size()));
            for (const auto& [node, ranks] : on_node) fewest = std::min(fewest, ranks);
          }
          const DimLink& dim = found.dims[is_tp ? 1 : 0];
          EXPECT_EQ(dim.nodes, most_nodes) << dp << ' ' << tp << ' ' << gpus_per_node;
          EXPECT_EQ(dim.per_node, fewest) << dp << ' ' << tp << ' ' << gpus_per_node;
        }
      }
}

// Dimensions share a link if its name is the same.
TEST(Links, AreToldApartByTheirFiguresNotByTheirSpelling) {
  const auto name = [](const std::string& text, std::size_t dim) {
    return links("dp=2,tp=2", text).dims[dim].model.name;
  };
  EXPECT_EQ(name("dp=10GB/s,tp=10000MB/s", 1), "10GB/s");
  EXPECT_EQ(name("dp=20us,10GB/s,tp=0.02ms,10GB/s", 1), "20us,10GB/s");
  EXPECT_NE(name("dp=10GB/s,tp=11GB/s", 1), "10GB/s");
  const std::string file = coshard::testing::temporary_path("link.json");
  std::ofstream(file) << R"({"gbps": 1, "base_us": 2, "step_us": 3, "crosses_nodes": 1})";
  const std::string other = "/." + file;
  EXPECT_EQ(name("dp=" + file + ",tp=" + other, 0), name("dp=" + file + ",tp=" + other, 1));
  std::filesystem::remove(file);
}

TEST(Links, MayBeGivenOnceOrForEachDimension) {
  EXPECT_EQ(links("dp=2,tp=4", "20us,1GB/s").dims[1].model.best_rate(), 1e9);
  const MeshLinks found = links("dp=2,tp=4", "tp=20us,1GB/s,dp=nvlink4");
  EXPECT_EQ(found.dims[0].model.name, "nvlink4");
  EXPECT_EQ(found.dims[1].model.protocols[0].base_ns, 20'000);
  EXPECT_EQ(found.figures.size(), 1U);
  EXPECT_EQ(&link_named(found, "dp"), &found.dims[0].model);
  EXPECT_EQ(&link_named(found, "world"), &found.dims[1].model);
}

TEST(Links, ThatCannotBeAreNamed) {
  expect_refused("dp=2,tp=8", "nvlink4", "--link dp=nvlink4: dp=2 spans 2 nodes of 8 GPUs");
  expect_refused("dp=2,tp=4", "pp=ndr", "the mesh dp=2,tp=4 has no dimension pp");
  expect_refused("dp=2,tp=4", "tp=nvlink4", "no link for dp");
  expect_refused("dp=2,tp=4", "tp=ndr,tp=ndr,dp=ndr", "tp is given twice");
  expect_refused(
      "dp=2,tp=4", "nvlnk",
      "--link nvlnk: No such file or directory; expected nvlink4, nvlink5, ndr, a rate such as "
      "365GB/s or a JSON file");
  expect_refused("dp=2,tp=4", "5furlongs,1GB/s", "link: expected a latency and a rate");
}

TEST(Links, AMeshIsDpAndTp) {
  EXPECT_EQ(to_string(parse_mesh_dims("tp=8,dp=2")), "tp=8,dp=2");
  expect_refused("pp=2", "", "--mesh pp=2: unknown dimension pp, expected dp or tp");
  expect_refused("dp=2,dp=4", "", "--mesh dp=2,dp=4: dp is given twice");
  expect_refused("dp", "", "--mesh dp: expected dp=N,tp=N, got dp");
  expect_refused("dp=2,", "", "--mesh dp=2,: expected dp=N,tp=N, got ''");
  expect_refused("", "", "--mesh '': expected dp=N,tp=N, got ''");
  expect_refused("dp=0", "", "--mesh dp=0: dp 0: must be a number from 1 to 1000000");
  expect_refused("dp=1000,tp=1001", "", "1001000 ranks are more than 1000000");
}

}  // namespace
}  // namespace coshard::tools
