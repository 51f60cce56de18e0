#include "dtensor/checkpoint/open_files.h"

#include <gtest/gtest.h>

#include "tests/dtensor/checkpoint/stored_files.h"
#include "tests/support/ranks.h"

namespace coshard::testing {
namespace {

std::string numbered(char value) {
  return stored_file(R"({"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
                     std::string(2, value));
}

TEST(OpenFiles, S25RankZeroAloneReadsThem) {
  const ScratchFolder scratch;
  std::vector<std::size_t> tensors(3);
  on_ranks(3, [&](World& world) -> Task<void> {
    // What the other ranks name is not there, and they do not look.
    const std::string path = world.rank() == 0 ? scratch.path("m") : "/nowhere";
    if (world.rank() == 0) scratch.write("m/model.safetensors", numbered('a'));
    Task<std::shared_ptr<const OpenFiles>> opening = open_files(world, path, "model");
    const std::shared_ptr<const OpenFiles> files = co_await std::move(opening);
    tensors[static_cast<std::size_t>(world.rank())] = files->folder.size();
    EXPECT_EQ(files->folder.files()[0].path(), scratch.path("m/model.safetensors"));
    EXPECT_NE(files->folder.files()[0].identity(), 0U);
    EXPECT_EQ(files->manifest, nullptr);
  });
  EXPECT_EQ(tensors, (std::vector<std::size_t>{1, 1, 1}));
}

TEST(OpenFiles, AnIndexThatIsNotTheOneThatWasWrittenIsDamaged) {
  const ScratchFolder scratch;
  const std::string index = R"({"weight_map":{"w":"o-00001-of-00001.safetensors"}})",
                    file = numbered('a');
  Manifest manifest;
  manifest.add("training/o.safetensors.index.json", index);
  manifest.add("training/o-00001-of-00001.safetensors", file);
  manifest.add("model.safetensors", file);
  scratch.write("m/model.safetensors", file);
  scratch.write("m/training/o-00001-of-00001.safetensors", file);
  scratch.write("m/" + std::string(Manifest::kPath), manifest.text());
  const auto open = [&](std::string_view text) {
    scratch.write("m/training/o.safetensors.index.json", text);
    on_ranks(2, [&](World& world) -> Task<void> {
      const std::string path = scratch.path("m");
      Task<std::shared_ptr<const OpenFiles>> opening = open_files(world, path, "model");
      const std::shared_ptr<const OpenFiles> model = co_await std::move(opening);
      Task<std::shared_ptr<const OpenFiles>> more = open_files(world, path, "training/o", model);
      const std::shared_ptr<const OpenFiles> files = co_await std::move(more);
      EXPECT_EQ(files->manifest, model->manifest);
      EXPECT_EQ(files->folder.index(), "training/o.safetensors.index.json");
    });
  };
  open(index);
  EXPECT_CONTAINS(message_of([&] { open(index + " "); }), "is damaged");
}

}  // namespace
}  // namespace coshard::testing
