// Files into tensors of any layout, on any mesh; and what cannot be loaded.
#include <filesystem>
#include <mutex>
#include <random>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/tape/tape.h>
#include "dtensor/checkpoint/model_folder.h"
#include "tests/dtensor/checkpoint/saved_states.h"

namespace coshard::testing {
namespace {

TEST(Load, FillsEveryLayoutWithTheBitsThatWereSaved) {
  const ScratchFolder scratch;
  const std::string folder = scratch.path("saved");
  on_ranks(2, [&](World& world) { return save_it(world, kPlacements[2], folder); });
  for (const Meshed& place : kPlacements) {
    if (place.layout.has_partial()) continue;
    on_ranks(ranks_of(place), [&](World& world) -> Task<void> {
      const DeviceMesh mesh = mesh_of(world, place);
      const State state = state_of(world, mesh, place.layout, 0);
      Task<LoadReport> loading = load(state, folder);
      const LoadReport report = co_await std::move(loading);
      EXPECT_TRUE(report.missing.empty() && report.unexpected.empty() && report.cast.empty());
      const State want = state_of(world, mesh, place.layout, 1);
      for (const NamedState& entry : want)
        EXPECT_EQ(entry.tensor.raw_local().to_vector(), state[entry.name].raw_local().to_vector())
            << entry.name << ' ' << place.layout;
    });
  }
}

// Large enough for several windows of several ranks, in files that cut them.
TEST(Load, S25ReadsEachByteOnceWindowAfterWindow) {
  const ScratchFolder scratch;
  const Shape shape{1030, 4100};
  const auto values = [&](World& world) { return counting(world, shape, DType::F64, 0.25); };
  SaveOptions options;
  options.file_bytes = 5 << 20;
  const auto stored = static_cast<std::int64_t>(numel(shape) * (8 + 2));
  std::int64_t read = 0;
  std::mutex mutex;
  on_ranks(2, [&](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    State state;
    state.add("a", distribute_tensor(values(world), mesh, Shard(1)));
    state.add("b", to(distribute_tensor(values(world), mesh, Shard(0)), DType::BF16));
    Task<void> saved = save(state, scratch.path("big"), options);
    co_await std::move(saved);
  });
  EXPECT_TRUE(std::filesystem::exists(scratch.path("big/model.safetensors.index.json")));
  on_ranks(4, [&](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {4}, {"tp"});
    const Tensor a = distribute_tensor(zeros(world.device(), shape, DType::F64), mesh, Shard(0)),
                 b = distribute_tensor(zeros(world.device(), shape, DType::BF16), mesh, Shard(1));
    State state;
    state.add("b", b).add("a", a);
    Task<LoadReport> loading = load(state, scratch.path("big"));
    const LoadReport report = co_await std::move(loading);
    EXPECT_TRUE(to_local(a).to_vector() ==
                to_local(distribute_tensor(values(world), mesh, Shard(0))).to_vector());
    EXPECT_TRUE(
        to_local(b).to_vector() ==
        to_local(to(distribute_tensor(values(world), mesh, Shard(1)), DType::BF16)).to_vector());
    EXPECT_LE(report.bytes, stored / world.size() + (1 << 20));
    const std::scoped_lock lock(mutex);
    read += report.bytes;
  });
  EXPECT_GE(read, stored);
  EXPECT_LE(read, stored + 2 * 4096);  // the heads of two files
}

TEST(Load, S8EachByteButZeroIsTrueAndIsSavedAsOne) {
  const ScratchFolder scratch;
  const std::string bytes("\x00\x01\x02\xff\x80", 5);
  scratch.write("m/model.safetensors",
                stored_file(R"({"x":{"dtype":"BOOL","shape":[5],"data_offsets":[0,5]}})", bytes));
  for (const Meshed& place : {Meshed{{1}, {Replicate()}}, Meshed{{2}, {Replicate()}},
                              Meshed{{2}, {Shard(0)}}, Meshed{{3}, {Shard(0)}}}) {
    const std::string folder = scratch.path(str_cat("n", ranks_of(place), place.layout));
    on_ranks(ranks_of(place), [&](World& world) -> Task<void> {
      const DeviceMesh mesh = mesh_of(world, place);
      State state;
      state.add("x",
                distribute_tensor(zeros(world.device(), {5}, DType::Bool), mesh, place.layout));
      Task<LoadReport> loading = load(state, scratch.path("m"));
      co_await std::move(loading);
      const Tensor local = state["x"].raw_local();
      std::string memory(static_cast<std::size_t>(local.local_numel()), '?');
      world.device()->download(memory.data(), local.const_data(), memory.size());
      for (const char byte : memory) EXPECT_TRUE(byte == 0 || byte == 1) << int{byte};
      EXPECT_EQ(full_tensor(state["x"]).to_vector(), (std::vector<double>{0, 1, 1, 1, 1}))
          << place.layout;
      Task<void> saved = save(state, folder);
      co_await std::move(saved);
    });
    const std::string file = bytes_of(folder + "/model.safetensors");
    EXPECT_EQ(file.substr(file.size() - 5), std::string("\0\1\1\1\1", 5)) << place.layout;
  }
}

TEST(Load, S31NamesAllThatDoesNotFitAndChangesNothing) {
  const ScratchFolder scratch;
  alone([&](World& world) -> Task<void> {
    State saved;
    saved.add("a", counting(world, {2, 3}, DType::F32)).add("b", counting(world, {4}, DType::F32));
    saved.add("c", counting(world, {4}, DType::F32)).add("d", counting(world, {4}, DType::F32));
    Task<void> saving = save(saved, scratch.path("m"));
    co_await std::move(saving);
    const Tensor a = counting(world, {2, 3}, DType::F32, 0),
                 b = counting(world, {2, 2}, DType::F32, 0),
                 c = counting(world, {4}, DType::BF16, 0), e = counting(world, {1}, DType::F32, 0);
    State state;
    state.add("a", a).add("b", b).add("c", c).add("e", e);
    Task<std::string> refused = refusal_of_load(state, scratch.path("m"));
    const std::string refused_text = co_await std::move(refused);
    expect_names(refused_text, {"'b' has shape [4] there and [2,2] here",
                                "'c' is F32 there and bf16 here", "lacks 'e'", "has 'd'"});
    EXPECT_EQ(a.to_vector(), std::vector<double>(6, 0));
    LoadOptions options;
    options.strict = false;
    options.cast = Cast::Any;
    State fits;
    fits.add("a", a).add("c", c).add("e", e);
    Task<LoadReport> loading = load(fits, scratch.path("m"), options);
    const LoadReport report = co_await std::move(loading);
    EXPECT_EQ(report.missing, std::vector<std::string>{"e"});
    EXPECT_EQ(report.unexpected, (std::vector<std::string>{"b", "d"}));
    EXPECT_EQ(report.cast, std::vector<std::string>{"c"});
    EXPECT_EQ(c.to_vector(), (std::vector<double>{1, 2, 3, 4}));
    EXPECT_EQ(a.to_vector().back(), 6);
  });
}

TEST(Load, WritesLeavesViewsAndWhatIsNotRowMajor) {
  const ScratchFolder scratch;
  on_ranks(2, [&](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    State saved;
    saved.add("w", counting(world, {4, 6}, DType::F32)).add("v", counting(world, {4, 6}));
    Task<void> saving = save(saved, scratch.path("m"));
    co_await std::move(saving);
    Tensor leaf = distribute_tensor(zeros(world.device(), {4, 6}), mesh, Shard(0));
    leaf.set_requires_grad(true);
    const Tensor turned =
        t(distribute_tensor(zeros(world.device(), {6, 4}, DType::F64), mesh, Shard(0)));
    const Tensor before = sum(leaf * leaf);
    State state;
    state.add("w", leaf).add("v", turned);
    Task<LoadReport> loading = load(state, scratch.path("m"));
    co_await std::move(loading);
    EXPECT_EQ(full_tensor(leaf.detach()).to_vector(), saved["w"].to_vector());
    EXPECT_EQ(full_tensor(turned).to_vector(), saved["v"].to_vector());
    EXPECT_THROW(run_backward(before), Error) << "what backward saved was overwritten";
  });
}

TEST(Load, S32TiedTensorsMayBeThereTwiceIfTheyAreEqual) {
  const ScratchFolder scratch;
  alone([&](World& world) -> Task<void> {
    const auto write = [&](const char* name, double scale) {
      State both;
      both.add("embed", counting(world, {3}, DType::F32));
      return save(both.add("head", counting(world, {3}, DType::F32, scale)), scratch.path(name));
    };
    Task<void> equal = write("equal", 1);
    co_await std::move(equal);
    Task<void> unequal = write("unequal", 2);
    co_await std::move(unequal);
    State tied;
    tied.add("embed", counting(world, {3}, DType::F32, 0)).tie("head", "embed");
    Task<LoadReport> loading = load(tied, scratch.path("equal"));
    const LoadReport report = co_await std::move(loading);
    EXPECT_TRUE(report.unexpected.empty() && report.missing.empty());
    EXPECT_EQ(tied["head"].to_vector(), (std::vector<double>{1, 2, 3}));
    Task<std::string> refused = refusal_of_load(tied, scratch.path("unequal"));
    const std::string refused_text = co_await std::move(refused);
    expect_names(refused_text, {"'head'", "tied"});
    Task<void> once = save(tied, scratch.path("once"));
    co_await std::move(once);
    EXPECT_EQ(ModelFolder(scratch.path("once")).size(), 1U);
    State other;
    other.add("head", counting(world, {3}, DType::F32, 0)).tie("embed", "head");
    Task<LoadReport> again = load(other, scratch.path("once"));
    co_await std::move(again);
    EXPECT_EQ(other["head"].to_vector(), (std::vector<double>{1, 2, 3}));
  });
}

TEST(Load, FailsAlikeOnAllRanks) {
  const ScratchFolder scratch;
  on_ranks(2, [&](World& world) { return save_it(world, kPlacements[1], scratch.path("m")); });
  std::filesystem::resize_file(scratch.path("m/model.safetensors"), 5000);
  on_ranks(2, [&](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    Task<std::string> refused =
        refusal_of_load(state_of(world, mesh, {Shard(0)}, 0), scratch.path("m"));
    const std::string refused_text = co_await std::move(refused);
    expect_names(refused_text, {"rank 0", "model.safetensors"});
    Task<std::string> nothing = refusal_of_load(State(), scratch.path("nothing"));
    const std::string nothing_text = co_await std::move(nothing);
    expect_names(nothing_text, {"nothing"});
  });
}

Task<void> save_step(World& world, std::string folder, double scale) {
  const DeviceMesh mesh = mesh_of(world, kPlacements[0]);
  TrainingFiles beside;
  beside.step = 1;
  Task<void> saved = save_with(state_of(world, mesh, kPlacements[0].layout, scale),
                               std::move(folder), {}, std::move(beside));
  co_await std::move(saved);
}

// What load says of the folder on one rank; "": it has loaded.
std::string refusal_of(const std::string& folder) {
  std::string text;
  on_ranks(1, [&](World& world) -> Task<void> {
    const DeviceMesh mesh = mesh_of(world, kPlacements[0]);
    Task<std::string> loading =
        refusal_of_load(state_of(world, mesh, kPlacements[0].layout, 0), folder);
    text = co_await std::move(loading);
  });
  return text;
}

TEST(Load, S16NoByteCanBeChangedOrLeftOut) {
  const ScratchFolder scratch;
  const std::string folder = scratch.path("m"), file = scratch.path("m/model.safetensors");
  on_ranks(1, [&](World& world) { return save_step(world, folder, 1); });
  ASSERT_EQ(refusal_of(folder), "");
  const std::string whole = bytes_of(file);
  std::mt19937_64 draw(16);
  for (int i = 0; i < 200; ++i) {
    // Half of them among the data, which begin at 4096.
    const std::size_t at =
        i % 2 == 0 ? draw() % whole.size() : 4096 + draw() % (whole.size() - 4096);
    std::string other = whole;
    other[at] = static_cast<char>(other[at] ^ (1 << draw() % 8));
    scratch.write("m/model.safetensors", other);
    const std::string text = refusal_of(folder);
    EXPECT_CONTAINS(text, "model.safetensors") << at;
    if (at >= 4096)
      expect_names(text, {"is damaged", "bytes 0 to", "they hold the header, 'ids', "});
    scratch.write("m/model.safetensors", whole.substr(0, at));
    EXPECT_CONTAINS(refusal_of(folder), "model.safetensors") << at;
  }
}

TEST(Load, S17RefusesAFileOfAnotherSave) {
  const ScratchFolder scratch;
  on_ranks(1, [&](World& world) { return save_step(world, scratch.path("a"), 1); });
  on_ranks(1, [&](World& world) { return save_step(world, scratch.path("b"), 2); });
  scratch.write("a/model.safetensors", bytes_of(scratch.path("b/model.safetensors")));
  EXPECT_CONTAINS(refusal_of(scratch.path("a")), "is damaged");
  std::filesystem::remove(scratch.path("a/model.safetensors"));
  EXPECT_CONTAINS(refusal_of(scratch.path("a")), "model.safetensors");
}

}  // namespace
}  // namespace coshard::testing
