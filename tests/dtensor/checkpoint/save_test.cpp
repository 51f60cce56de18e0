// Folders that save writes: the same bytes from every layout, whole or not at all.
#include <filesystem>
#include <map>
#include <optional>

#include "dtensor/checkpoint/manifest.h"
#include "tests/dtensor/checkpoint/saved_states.h"

namespace coshard::testing {
namespace {

TEST(Save, WritesTheSameBytesFromEveryLayout) {
  const ScratchFolder scratch;
  std::string first;
  for (std::size_t i = 0; i < kPlacements.size(); ++i) {
    const std::string folder = scratch.path(std::to_string(i));
    on_ranks(ranks_of(kPlacements[i]),
             [&](World& world) { return save_it(world, kPlacements[i], folder); });
    const std::string bytes = bytes_of(folder + "/model.safetensors");
    if (i == 0) first = bytes;
    EXPECT_TRUE(bytes == first) << kPlacements[i].layout;
    EXPECT_FALSE(std::filesystem::exists(folder + ".part"));
  }
  EXPECT_GT(first.size(), 4096U);
}

// All files of a folder: name and bytes.
std::map<std::string, std::string> files_in(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file())
      files[std::filesystem::relative(entry.path(), folder).string()] = bytes_of(entry.path());
  return files;
}

Task<void> save_for_training(World& world, const Meshed& place, std::string folder) {
  const DeviceMesh mesh = mesh_of(world, place);
  SaveOptions options;
  options.file_bytes = 600;
  TrainingFiles beside;
  beside.step = 7;
  beside.training["optimizer"] = state_of(world, mesh, place.layout, 2);
  beside.files["config.json"] = "{}";
  Task<void> saved = save_with(state_of(world, mesh, place.layout, 1), std::move(folder), options,
                               std::move(beside));
  co_await std::move(saved);
}

TEST(Save, S1WritesTheSameFilesOfTrainingFromEveryLayout) {
  const ScratchFolder scratch;
  std::map<std::string, std::string> first;
  for (std::size_t i = 0; i < kPlacements.size(); ++i) {
    const std::string folder = scratch.path(std::to_string(i));
    on_ranks(ranks_of(kPlacements[i]),
             [&](World& world) { return save_for_training(world, kPlacements[i], folder); });
    std::map<std::string, std::string> files = files_in(folder);
    if (i == 0) first = files;
    EXPECT_TRUE(files == first) << kPlacements[i].layout;
  }
  EXPECT_EQ(first.count("training/optimizer.safetensors.index.json"), 1U);
  EXPECT_EQ(first.count("model.safetensors.index.json"), 1U);
  const std::optional<Manifest> manifest = Manifest::of(scratch.path("0"));
  ASSERT_TRUE(manifest);
  EXPECT_EQ(manifest->step, 7);
  std::map<std::string, std::string> known = first;
  EXPECT_EQ(known.erase(std::string(Manifest::kPath)), 1U);
  EXPECT_EQ(known.size(), manifest->files().size());
  for (const auto& [name, bytes] : known) manifest->require_whole(scratch.path("0"), name, {});
}

TEST(Save, RefusesNamesOfFilesThatAreNone) {
  alone([](World& world) -> Task<void> {
    State state;
    state.add("x", counting(world, {3}));
    for (const char* name : {"", "../a", "a/b", ".hidden", "a b", "a\n"}) {
      TrainingFiles training, files;
      training.training[name] = state;
      files.files[name] = "";
      Task<std::string> first = refusal_of_save(state, "never", {}, training);
      const std::string refused = co_await std::move(first);
      EXPECT_CONTAINS(refused, "training has '");
      Task<std::string> second = refusal_of_save(state, "never", {}, files);
      const std::string also = co_await std::move(second);
      EXPECT_CONTAINS(also, "files has '");
    }
    TrainingFiles over;
    over.files["model.safetensors"] = "";
    Task<std::string> third = refusal_of_save(state, "never", {}, over);
    const std::string refused = co_await std::move(third);
    EXPECT_CONTAINS(refused, "model's files");
    over.files.clear();
    over.step = -1;
    Task<std::string> fourth = refusal_of_save(state, "never", {}, over);
    const std::string negative = co_await std::move(fourth);
    EXPECT_CONTAINS(negative, "step -1");
  });
}

TEST(Save, ReplacesAFolderOnlyIfItIsToldTo) {
  const ScratchFolder scratch;
  scratch.write("there/notes.txt", "mine");
  scratch.write("there/model.safetensors", "old");
  scratch.write("file", "mine");
  std::filesystem::create_directory(scratch.path("empty"));
  scratch.write("there.part/.saving", "");
  on_ranks(2, [&](World& world) -> Task<void> {
    State state;
    state.add("x", counting(world, {3}));
    Task<std::string> onto = refusal_of_save(state, scratch.path("there"));
    const std::string onto_text = co_await std::move(onto);
    expect_names(onto_text, {"not empty", "overwrite"});
    Task<std::string> over = refusal_of_save(state, scratch.path("file"));
    const std::string over_text = co_await std::move(over);
    expect_names(over_text, {"no folder"});
    Task<std::string> below = refusal_of_save(state, scratch.path("none/out"));
    const std::string below_text = co_await std::move(below);
    expect_names(below_text, {"none/out.part", "cannot be made", "`mkdir -p ", "none`"});
    Task<void> empty = save(state, scratch.path("empty/"));
    co_await std::move(empty);
    SaveOptions options;
    options.overwrite = true;
    Task<void> replaced = save(state, scratch.path("there"), options);
    co_await std::move(replaced);
  });
  EXPECT_FALSE(std::filesystem::exists(scratch.path("there/notes.txt")));
  EXPECT_FALSE(std::filesystem::exists(scratch.path("there.part")));
  EXPECT_TRUE(std::filesystem::exists(scratch.path("there/model.safetensors")));
  EXPECT_TRUE(std::filesystem::exists(scratch.path("empty/model.safetensors")));
  EXPECT_EQ(bytes_of(scratch.path("file")), "mine");
}

}  // namespace
}  // namespace coshard::testing
