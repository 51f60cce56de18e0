#include "dtensor/checkpoint/save_in_progress.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include <coshard/dtensor/redistribute/redistribute.h>
#include "dtensor/checkpoint/agreement.h"
#include "dtensor/checkpoint/aligned_bytes.h"
#include "dtensor/checkpoint/band_writer.h"
#include "dtensor/checkpoint/disk_thread.h"
#include "dtensor/checkpoint/exchange.h"
#include "dtensor/checkpoint/file.h"
#include "dtensor/checkpoint/file_layout.h"
#include "dtensor/checkpoint/local_parts.h"
#include "dtensor/checkpoint/manifest.h"
#include "dtensor/checkpoint/new_folder.h"
#include "dtensor/checkpoint/same_state.h"
#include "dtensor/checkpoint/strict_json.h"
#include "dtensor/checkpoint/training_files.h"
#include "dtensor/ops/recipe.h"
#include "dtensor/tape/marks.h"
#include "runtime/comm/collective.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

constexpr std::string_view kTraining = "training/";

// The state itself, then those of training.
std::vector<std::pair<std::string, const State*>> parts_of(const State& state,
                                                           const TrainingFiles& beside) {
  std::vector<std::pair<std::string, const State*>> parts{{beside.stem, &state}};
  for (const auto& [name, part] : beside.training)
    parts.emplace_back(str_cat(kTraining, name), &part);
  return parts;
}

bool has_manifest(const TrainingFiles& beside) {
  return !beside.training.empty() || beside.step.has_value();
}

void check(const State& state, const SaveOptions& options, const TrainingFiles& beside) {
  CS_REQUIRE(options.file_bytes > 0, "save: file_bytes must be at least 1, got ",
             options.file_bytes);
  CS_REQUIRE(!options.dtype || is_floating(*options.dtype), "save: dtype ", *options.dtype,
             " is none of f32, f64, bf16 and f16");
  CS_REQUIRE(!beside.step || *beside.step >= 0, "save: step ", *beside.step, " is negative");
  for (const auto& [name, part] : beside.training)
    CS_REQUIRE(is_file_name(name), "save: training has '", shortened(name),
               "', which is no name of a file; use letters, digits, '_', '-' and '.'");
  for (const auto& [name, bytes] : beside.files)
    CS_REQUIRE(is_file_name(name) && !name.ends_with(".safetensors") &&
                   name != beside.stem + ".safetensors.index.json",
               "save: files has '", shortened(name),
               "'; use letters, digits, '_', '-' and '.', and no name of the model's files");
  for (const auto& [stem, part] : parts_of(state, beside))
    for (const NamedState& entry : *part) {
      require_values(entry.tensor);
      CS_REQUIRE(entry.tensor.is_distributed() || entry.tensor.marks() == 0, "save: '", entry.name,
                 "', ", entry.tensor, ", is plain and differs by rank along ",
                 names_of(entry.tensor.marks()),
                 "; from_local() with Shard or Partial says what it is a part of");
    }
}

std::uint64_t hash_of(const std::map<std::string, std::string>& files) {
  std::uint64_t hash = files.size();
  for (const auto& [name, text] : files)
    for (const std::string_view part : {std::string_view(name), std::string_view(text)})
      hash = mix(hash, hash_of_chunk(std::as_bytes(std::span(part))));
  return hash;
}

// What is written where: files, with the tensors in their order.
struct Plan {
  std::vector<FileLayout::File> files;
  std::map<std::string, std::string> texts;  // further files
  struct Entry {
    FileLayout::Place place;
    Tensor tensor;
    DType type;  // in the file
  };
  std::vector<Entry> entries;

  void add(const State& state, std::optional<DType> dtype, std::int64_t file_bytes,
           std::string_view stem) {
    std::vector<NewTensor> made;
    std::vector<DType> types;
    for (const auto& [name, tensor, also] : state) {
      types.push_back(dtype && is_floating(tensor.dtype()) ? *dtype : tensor.dtype());
      made.push_back(
          {name, to_stored(types.back()), {tensor.shape().begin(), tensor.shape().end()}});
    }
    FileLayout layout = lay_out(made, file_bytes, stem);
    for (FileLayout::Place place : layout.places) {
      const std::size_t i = place.tensor;
      place.file += files.size();
      entries.push_back(
          {place, (state.begin() + static_cast<std::ptrdiff_t>(i))->tensor, types[i]});
    }
    std::ranges::move(layout.files, std::back_inserter(files));
    if (!layout.index.empty()) texts[std::string(stem) + ".safetensors.index.json"] = layout.index;
  }
  std::vector<std::int64_t> sizes() const {
    std::vector<std::int64_t> all;
    for (const FileLayout::File& file : files) all.push_back(file.bytes);
    return all;
  }
  std::vector<FileBytes> whole() const {
    std::vector<FileBytes> all;
    for (std::size_t i = 0; i < files.size(); ++i) all.push_back({i, 0, files[i].bytes});
    return all;
  }
  std::vector<Tensor> tensors() const {
    std::vector<Tensor> all;
    for (const Entry& entry : entries) all.push_back(entry.tensor);
    return all;
  }
};

// `hashes`: of all chunks, in order of files and places.
Manifest manifest_of(const std::vector<FileLayout::File>& files,
                     const std::map<std::string, std::string>& texts,
                     std::optional<std::int64_t> step, std::span<const std::uint64_t> hashes) {
  Manifest made;
  made.step = step;
  for (const FileLayout::File& file : files) {
    const auto own = hashes.first(static_cast<std::size_t>(chunks_of(file.bytes)));
    made.add(file.name, {file.bytes, {own.begin(), own.end()}});
    hashes = hashes.subspan(own.size());
  }
  for (const auto& [name, text] : texts) made.add(name, text);
  return made;
}

// Those of all ranks, in their order.
Task<std::vector<std::uint64_t>> gather_hashes(World& world, std::vector<std::uint64_t> own,
                                               std::size_t all) {
  const auto ranks = static_cast<std::size_t>(world.size());
  const std::size_t most = (all + ranks - 1) / ranks;  // Bands deals them out evenly
  const std::size_t count = own.size();
  own.resize(most + 1);
  own[most] = count;
  Task<std::vector<std::uint64_t>> gathering =
      gather_numbers<std::uint64_t>(world, std::move(own), "hashes");
  const std::vector<std::uint64_t> got = co_await std::move(gathering);
  std::vector<std::uint64_t> hashes;
  for (std::size_t at = 0; at < got.size(); at += most + 1)
    for (std::size_t i = 0; i < got[at + most]; ++i) hashes.push_back(got[at + i]);
  co_return hashes;
}

}  // namespace

// Of one rank.
struct SaveInProgress::Inside {
  Inside(World& of, SavingHow with) : world(of), how(std::move(with)) {}

  void make_files(const std::string& place, bool overwrite);
  Task<void> collect(Plan& plan);
  // The rest, once all ranks have written: rank 0's thread gives the folder its name.
  Task<void> commit();

  World& world;
  SavingHow how;
  bool has_hashes = false;
  std::optional<std::int64_t> step;
  std::vector<FileLayout::File> files;
  std::map<std::string, std::string> texts;
  std::shared_ptr<NewFolder> made;  // rank 0
  std::shared_ptr<BandWriter> writer;
  Vote done;
  bool commits = false;
  std::uint64_t unfinished = 0;  // World::must_finish
  DiskThread thread;
};

SaveInProgress::SaveInProgress(std::unique_ptr<Inside> inside) : inside_(std::move(inside)) {}
SaveInProgress::~SaveInProgress() = default;

Task<std::unique_ptr<SaveInProgress>> SaveInProgress::begin(State state, std::string folder,
                                                            SaveOptions options,
                                                            TrainingFiles beside, SavingHow how) {
  World* const world = World::current();
  CS_REQUIRE(world != nullptr, "save: called outside of a rank's program");
  auto inside = std::make_unique<Inside>(*world, std::move(how));
  Inside& in = *inside;
  Plan plan;
  State all;
  std::string place;
  std::exception_ptr failed = failure_of([&] {
    place = NewFolder::resolved(folder);
    check(state, options, beside);
    for (const auto& [stem, part] : parts_of(state, beside)) {
      plan.add(*part, part == &state ? options.dtype : std::nullopt, options.file_bytes, stem);
      all.add(part == &state ? "" : stem, *part);
    }
  });
  Task<void> same = require_same_state(
      *world, "save", all,
      str_cat("'", shortened(folder), "', dtype ",
              options.dtype ? to_string(*options.dtype) : "as it is", ", file_bytes ",
              options.file_bytes, ", overwrite ", options.overwrite, ", step ",
              beside.step.value_or(-1), ", files ", hash_of(beside.files)),
      failed);
  co_await std::move(same);

  in.has_hashes = has_manifest(beside);
  in.step = beside.step;
  in.files = plan.files;
  in.texts = std::move(beside.files);
  in.texts.merge(plan.texts);
  const WaitLimit disk(limit_of_disks(*world));
  if (world->rank() == 0) failed = failure_of([&] { in.make_files(place, options.overwrite); });
  Task<void> begun = agree(*world, failed);
  co_await std::move(begun);
  in.writer = std::make_shared<BandWriter>(NewFolder::part_of(place), in.files, in.has_hashes);
  Task<void> collected = in.collect(plan);
  co_await std::move(collected);
  in.thread.run([writer = in.writer] { writer->finish(); });
  in.unfinished = world->must_finish(
      str_cat("'", shortened(folder),
              "' was being saved when the program ended, and is lost unless it is there; await the "
              "Saving, or Checkpoints::finish()"));
  co_return std::unique_ptr<SaveInProgress>(new SaveInProgress(std::move(inside)));
}

// Rank 0's: the folder, all files in their sizes, and what is small.
void SaveInProgress::Inside::make_files(const std::string& place, bool overwrite) {
  made = std::make_shared<NewFolder>(place, overwrite);
  if (has_hashes) made->make_folder("training");
  for (const FileLayout::File& file : files) OutputFile::make(made->at(file.name), file.bytes);
  for (const auto& [name, text] : texts) made->write(name, text);
}

Task<void> SaveInProgress::Inside::collect(Plan& plan) {
  const std::vector<Tensor> tensors = without_partials(plan.tensors());
  Task<void> arrived = arrival_of(tensors);
  co_await std::move(arrived);
  std::vector<DType> types;
  for (const Plan::Entry& entry : plan.entries) types.push_back(entry.type);
  Task<std::vector<HeldTensor>> holders = holders_of(world, tensors, types);
  std::vector<HeldTensor> held = co_await std::move(holders);
  std::vector<PlacedTensor> placed;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const FileLayout::Place& place = plan.entries[i].place;
    placed.push_back({place.file, place.begin, place.end, std::move(held[i])});
  }
  const Bands bands(plan.sizes(), plan.whole(), world.size(), window_bytes(world.size()));
  Exchange exchange(world, bands, placed);
  const std::vector<int> last = exchange.last_windows();
  PartsToSave parts(tensors, types);
  for (int window = 0; window < bands.windows(); ++window) {
    const std::vector<FileBytes> own = bands.window(world.rank(), window);
    const std::int64_t size = bytes_in_memory(own);
    const auto bytes = std::make_shared<AlignedBytes>(take_aligned(*how.pool, size));
    Task<void> collected = exchange.collect(window, parts, bytes->first(size));
    co_await std::move(collected);
    thread.run([writer = writer, pool = how.pool, own, bytes] {
      writer->write(own, *bytes);
      pool->give(std::move(*bytes));
    });
    thread.wait(how.windows_waiting);
    for (std::size_t i = 0; i < last.size(); ++i)
      if (last[i] == window) parts.let_go(i);
  }
}

Task<void> SaveInProgress::Inside::commit() {
  Task<void> written = agree(world, thread.failure());
  co_await std::move(written);
  commits = true;
  done = Vote();
  std::vector<std::uint64_t> hashes;
  if (has_hashes) {
    std::int64_t chunks = 0;
    for (const FileLayout::File& file : files) chunks += chunks_of(file.bytes);
    Task<std::vector<std::uint64_t>> gathered =
        gather_hashes(world, writer->take_hashes(), static_cast<std::size_t>(chunks));
    hashes = co_await std::move(gathered);
  }
  if (made == nullptr) co_return;
  std::string manifest;
  if (has_hashes) manifest = manifest_of(files, texts, step, hashes).text();
  thread.run([made = made, manifest, then = how.then] {
    if (!manifest.empty()) made->write(Manifest::kPath, manifest);
    made->commit();
    if (then) then();
  });
}

Task<void> SaveInProgress::finish() {
  Inside& in = *inside_;
  in.world.finished(in.unfinished);  // or it throws
  const WaitLimit disk(limit_of_disks(in.world));
  if (!in.commits) {
    in.thread.wait();
    Task<void> committed = in.commit();
    co_await std::move(committed);
  }
  in.thread.wait();
  Task<void> agreed = agree(in.world, in.thread.failure());
  co_await std::move(agreed);
}

Task<bool> SaveInProgress::poll() {
  Inside& in = *inside_;
  const WaitLimit disk(limit_of_disks(in.world));
  if (in.world.executor().virtual_time()) in.thread.wait();  // a simulation depends on no disk
  Task<bool> voted = in.done.all(in.world, in.thread.is_idle());
  const bool done = co_await std::move(voted);
  if (!done) co_return false;
  if (in.commits) {
    Task<void> finished = finish();
    co_await std::move(finished);
    co_return true;
  }
  try {
    Task<void> committed = in.commit();
    co_await std::move(committed);
  } catch (...) {
    in.world.finished(in.unfinished);
    throw;
  }
  co_return false;
}

}  // namespace coshard
