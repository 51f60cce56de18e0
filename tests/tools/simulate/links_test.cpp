#include "tools/simulate/links.h"

#include <gtest/gtest.h>

#include <coshard/runtime/error.h>

namespace coshard::tools {
namespace {

MeshLinks links(const std::string& mesh, const std::string& text, int gpus_per_node = 8,
                const std::string& gpu = "h100") {
  return links_of(parse_mesh_dims(mesh), text, gpu, gpus_per_node);
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
