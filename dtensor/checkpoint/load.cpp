#include <coshard/dtensor/checkpoint/load.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "dtensor/checkpoint/agreement.h"
#include "dtensor/checkpoint/aligned_bytes.h"
#include "dtensor/checkpoint/band_reader.h"
#include "dtensor/checkpoint/disk_thread.h"
#include "dtensor/checkpoint/exchange.h"
#include "dtensor/checkpoint/fit.h"
#include "dtensor/checkpoint/local_parts.h"
#include "dtensor/checkpoint/open_files.h"
#include "dtensor/checkpoint/same_state.h"
#include "dtensor/checkpoint/strict_json.h"
#include "dtensor/checkpoint/training_files.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

constexpr int kReadAhead = 2;  // windows that are read while one is spread

// A tensor of the state, or a copy of a tied one, and where a file has it.
struct Loaded {
  std::string_view name;
  Tensor tensor;
  ModelFolder::Place place;
  DType type;                     // in the file
  std::optional<Tensor> same_as;  // of a further name: must have this value
};

// The state's tensors with their places; what is missing, unexpected and cast goes into `report`.
std::vector<Loaded> matched(const State& state, const ModelFolder& folder,
                            const LoadOptions& options, const FilesToLoad& from,
                            LoadReport& report) {
  std::vector<Loaded> all;
  Complaints complaints;
  const auto take = [&](std::string_view name, const Tensor& tensor,
                        const std::optional<Tensor>& same_as) {
    const std::optional<ModelFolder::Place> found = folder.find(name);
    if (!found) return false;
    const StoredTensor& stored = found->tensor;
    const std::optional<DType> type = to_dtype(stored.type);
    const bool fits = std::ranges::equal(
        stored.shape, tensor.shape(),
        [](std::uint64_t a, std::int64_t b) { return a == static_cast<std::uint64_t>(b); });
    if (!fits)
      complaints.add("'", shortened(name), "' has shape ", shortened(sizes_text(stored.shape)),
                     " there and ", tensor.shape(), " here");
    else if (!type || !may_be_cast(*type, tensor.dtype(), options.cast))
      complaints.add_type(name, to_string(stored.type), tensor.dtype(),
                          type && may_be_cast(*type, tensor.dtype(), Cast::Any));
    if (!fits || !type) return true;
    if (*type != tensor.dtype()) report.cast.emplace_back(name);
    all.push_back({name, tensor, *found, *type, same_as});
    return true;
  };
  for (const NamedState& entry : state) {
    std::optional<Tensor> first;
    if (take(entry.name, entry.tensor, {})) first = entry.tensor;
    for (const std::string& name : entry.also) {
      if (!folder.find(name)) continue;
      if (first) {
        take(name, empty_as(entry.tensor), first);
      } else {
        take(name, entry.tensor, {});
        first = entry.tensor;
      }
    }
    if (!first) report.missing.push_back(entry.name);
  }
  for (std::size_t i = 0; i < folder.size(); ++i)
    if (const std::string_view name = folder[i].tensor.name; state.find(name) == nullptr) {
      const bool is_unused = std::ranges::any_of(
          from.unused, [&](const std::string& end) { return name.ends_with(end); });
      (is_unused ? report.unused : report.unexpected).emplace_back(name);
    }
  if (options.strict) complaints.add_names(report);
  complaints.require_none("load: " + from.path);
  std::ranges::sort(all, {}, [](const Loaded& t) {
    return std::tuple(t.place.file, t.place.tensor.begin, t.place.tensor.end);
  });
  return all;
}

}  // namespace

Task<LoadReport> load(State state, std::string path, LoadOptions options, CallSite site) {
  const UserCall user(site);
  Task<LoadReport> loaded = load_files(std::move(state), {std::move(path)}, options);
  co_return co_await std::move(loaded);
}

Task<LoadReport> load_files(State state, FilesToLoad from, LoadOptions options) {
  World* const world = World::current();
  CS_REQUIRE(world != nullptr, "load: called outside of a rank's program");
  const std::string& path = from.path;
  Task<void> same = require_same_state(*world, "load", state,
                                       str_cat("'", shortened(path), "', strict ", options.strict,
                                               ", cast ", static_cast<int>(options.cast)),
                                       nullptr);
  co_await std::move(same);
  std::shared_ptr<const OpenFiles> files = from.open;
  if (files == nullptr) {
    Task<std::shared_ptr<const OpenFiles>> opening = open_files(*world, path, from.stem);
    files = co_await std::move(opening);
  }
  const ModelFolder& folder = files->folder;
  LoadReport report;
  std::vector<Loaded> to_load;
  std::vector<Tensor> tensors;
  std::vector<DType> types;
  std::optional<PartsToLoad> parts;
  std::exception_ptr failed = failure_of([&] {
    to_load = matched(state, folder, options, from, report);
    for (const Loaded& loaded : to_load) {
      tensors.push_back(loaded.tensor);
      types.push_back(loaded.type);
    }
    if (!from.only_checks) parts.emplace(tensors, types);
  });
  Task<void> fits = agree(*world, failed);
  co_await std::move(fits);
  if (from.only_checks) co_return report;

  Task<std::vector<HeldTensor>> holders = holders_of(*world, tensors, types);
  std::vector<HeldTensor> held = co_await std::move(holders);
  std::vector<PlacedTensor> placed;
  std::vector<FileBytes> wanted;
  for (std::size_t i = 0; i < to_load.size(); ++i) {
    const Loaded& loaded = to_load[i];
    const SafetensorsHeader& file = folder.files()[loaded.place.file];
    const auto begin = static_cast<std::int64_t>(file.data_begin() + loaded.place.tensor.begin);
    const auto end = static_cast<std::int64_t>(file.data_begin() + loaded.place.tensor.end);
    placed.push_back({loaded.place.file, begin, end, std::move(held[i])});
    wanted.push_back({loaded.place.file, begin, end});
  }
  std::ranges::sort(wanted, {}, [](const FileBytes& b) { return std::tuple(b.file, b.begin); });
  std::vector<std::int64_t> sizes;
  for (const SafetensorsHeader& file : folder.files())
    sizes.push_back(static_cast<std::int64_t>(file.file_bytes()));
  const Bands bands(sizes, wanted, world->size(), window_bytes(world->size()));
  Exchange exchange(*world, bands, placed);
  const std::vector<int> last = exchange.last_windows();
  const auto put_those_of = [&](int window) {
    for (std::size_t i = 0; i < last.size(); ++i)
      if (last[i] == window) parts->put(i);
  };
  put_those_of(-1);
  BandReader reader(*files);
  const WaitLimit disk(limit_of_disks(*world));
  BytesPool pool;
  DiskThread thread;
  std::deque<std::shared_ptr<AlignedBytes>> ahead;  // windows that are being read
  const auto read_ahead = [&](int window) {
    if (window >= bands.windows()) return;
    ahead.push_back(std::make_shared<AlignedBytes>());
    thread.run([&reader, &pool, bytes = ahead.back(), own = bands.window(world->rank(), window)] {
      *bytes = take_aligned(pool, bytes_in_memory(own));
      reader.read(own, *bytes);
    });
  };
  for (int window = 0; window < kReadAhead; ++window) read_ahead(window);
  for (int window = 0; window < bands.windows(); ++window) {
    thread.wait(ahead.size() - 1);
    Task<void> read = agree(*world, thread.failure());
    co_await std::move(read);
    const std::shared_ptr<AlignedBytes> bytes = ahead.front();
    ahead.pop_front();
    read_ahead(window + kReadAhead);
    const std::vector<FileBytes> own = bands.window(world->rank(), window);
    for (const FileBytes& part : own) report.bytes += part.end - part.begin;
    Task<void> spread = exchange.spread(window, bytes->first(bytes_in_memory(own)), *parts);
    co_await std::move(spread);
    pool.give(std::move(*bytes));
    put_those_of(window);
  }
  failed = failure_of([&] {
    for (const Loaded& loaded : to_load)
      CS_REQUIRE(!loaded.same_as || has_same_bits(loaded.tensor, *loaded.same_as), "load: ", path,
                 ": '", shortened(loaded.name),
                 "' has other values than the tensor that it is tied to here");
  });
  Task<void> done = agree(*world, failed);
  co_await std::move(done);
  co_return report;
}

}  // namespace coshard
