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

// The state's tensors with their places; what is missing, unexpected and cast goes into the report.
class Matching {
 public:
  Matching(const ModelFolder& folder, const LoadOptions& options, LoadReport& report)
      : folder_(folder), options_(options), report_(report) {}

  std::vector<Loaded> of(const State& state, const FilesToLoad& from) {
    for (const NamedState& entry : state) take_all_names(entry);
    std::vector<std::string>& missing = report_.missing;
    const auto optional = std::stable_partition(
        missing.begin(), missing.end(),
        [&](const std::string& name) { return std::ranges::count(from.optional, name) == 0; });
    const std::vector<std::string> left(optional, missing.end());
    missing.erase(optional, missing.end());
    for (std::size_t i = 0; i < folder_.size(); ++i)
      if (const std::string_view name = folder_[i].tensor.name; state.find(name) == nullptr) {
        const bool is_unused = std::ranges::any_of(
            from.unused, [&](const std::string& end) { return name.ends_with(end); });
        (is_unused ? report_.unused : report_.unexpected).emplace_back(name);
      }
    if (options_.strict) complaints_.add_names(report_);
    complaints_.require_none("load: " + from.path);
    missing.insert(missing.end(), left.begin(), left.end());
    std::ranges::sort(all_, {}, [](const Loaded& t) {
      return std::tuple(t.place.file, t.place.tensor.begin, t.place.tensor.end);
    });
    return std::move(all_);
  }

 private:
  // The first name that is there, and all others with the value of that.
  void take_all_names(const NamedState& entry) {
    std::optional<Tensor> first;
    if (take(entry.name, entry.tensor, {})) first = entry.tensor;
    for (const std::string& name : entry.also) {
      if (!folder_.find(name)) continue;
      if (first) {
        take(name, empty_as(entry.tensor), first);
      } else {
        take(name, entry.tensor, {});
        first = entry.tensor;
      }
    }
    if (!first) report_.missing.push_back(entry.name);
  }

  // False: it is not there.
  bool take(std::string_view name, const Tensor& tensor, const std::optional<Tensor>& same_as) {
    const std::optional<ModelFolder::Place> found = folder_.find(name);
    if (!found) return false;
    const StoredTensor& stored = found->tensor;
    const std::optional<DType> type = to_dtype(stored.type);
    const bool fits = std::ranges::equal(
        stored.shape, tensor.shape(),
        [](std::uint64_t a, std::int64_t b) { return a == static_cast<std::uint64_t>(b); });
    if (!fits)
      complaints_.add("'", shortened(name), "' has shape ", shortened(sizes_text(stored.shape)),
                      " there and ", tensor.shape(), " here");
    else if (!type || !may_be_cast(*type, tensor.dtype(), options_.cast))
      complaints_.add_type(name, to_string(stored.type), tensor.dtype(),
                           type && may_be_cast(*type, tensor.dtype(), Cast::Any));
    if (!fits || !type) return true;
    if (*type != tensor.dtype()) report_.cast.emplace_back(name);
    all_.push_back({name, tensor, *found, *type, same_as});
    return true;
  }

  const ModelFolder& folder_;
  const LoadOptions& options_;
  LoadReport& report_;
  Complaints complaints_;
  std::vector<Loaded> all_;
};

// Windows of this rank's band, some of which are read while another is used.
class ReadAhead {
 public:
  ReadAhead(const OpenFiles& files, const Bands& bands, int rank)
      : bands_(bands), rank_(rank), reader_(files) {
    for (int window = 0; window < kReadAhead; ++window) begin(window);
  }
  // Resumes when the next one has been read on all ranks.
  Task<std::shared_ptr<AlignedBytes>> next(World& world, int window) {
    thread_.wait(ahead_.size() - 1);
    Task<void> read = agree(world, thread_.failure());
    co_await std::move(read);
    std::shared_ptr<AlignedBytes> bytes = ahead_.front();
    ahead_.pop_front();
    begin(window + kReadAhead);
    co_return bytes;
  }
  void give(AlignedBytes&& bytes) { pool_.give(std::move(bytes)); }

 private:
  void begin(int window) {
    if (window >= bands_.windows()) return;
    ahead_.push_back(std::make_shared<AlignedBytes>());
    thread_.run([this, bytes = ahead_.back(), own = bands_.window(rank_, window)] {
      *bytes = take_aligned(pool_, bytes_in_memory(own));
      reader_.read(own, *bytes);
    });
  }

  const Bands& bands_;
  int rank_;
  BandReader reader_;
  BytesPool pool_;
  std::deque<std::shared_ptr<AlignedBytes>> ahead_;  // being read
  DiskThread thread_;                                // ends first
};

// Where the tensors lie in the files: with what each rank holds of them, and as ranges in order.
struct StoredRanges {
  std::vector<PlacedTensor> placed;
  std::vector<FileBytes> wanted;
  std::vector<std::int64_t> sizes;  // of the files

  StoredRanges(const std::vector<Loaded>& to_load, std::vector<HeldTensor> held,
               const ModelFolder& folder) {
    for (std::size_t i = 0; i < to_load.size(); ++i) {
      const Loaded& loaded = to_load[i];
      const SafetensorsHeader& file = folder.files()[loaded.place.file];
      const auto begin = static_cast<std::int64_t>(file.data_begin() + loaded.place.tensor.begin);
      const auto end = static_cast<std::int64_t>(file.data_begin() + loaded.place.tensor.end);
      placed.push_back({loaded.place.file, begin, end, std::move(held[i])});
      wanted.push_back({loaded.place.file, begin, end});
    }
    std::ranges::sort(wanted, {}, [](const FileBytes& b) { return std::tuple(b.file, b.begin); });
    for (const SafetensorsHeader& file : folder.files())
      sizes.push_back(static_cast<std::int64_t>(file.file_bytes()));
  }
};

// Reads the files window by window and fills `parts`; counts the bytes that this rank has read.
Task<std::int64_t> fill(World& world, const OpenFiles& files, StoredRanges ranges,
                        PartsToLoad& parts) {
  const Bands bands(ranges.sizes, ranges.wanted, world.size(), window_bytes(world.size()));
  Exchange exchange(world, bands, ranges.placed);
  const std::vector<int> last = exchange.last_windows();
  const auto put_those_of = [&](int window) {
    for (std::size_t i = 0; i < last.size(); ++i)
      if (last[i] == window) parts.put(i);
  };
  put_those_of(-1);
  const WaitLimit disk(limit_of_disks(world));
  ReadAhead reader(files, bands, world.rank());
  std::int64_t read = 0;
  for (int window = 0; window < bands.windows(); ++window) {
    Task<std::shared_ptr<AlignedBytes>> reading = reader.next(world, window);
    const std::shared_ptr<AlignedBytes> bytes = co_await std::move(reading);
    const std::vector<FileBytes> own = bands.window(world.rank(), window);
    for (const FileBytes& part : own) read += part.end - part.begin;
    Task<void> spread = exchange.spread(window, bytes->first(bytes_in_memory(own)), parts);
    co_await std::move(spread);
    reader.give(std::move(*bytes));
    put_those_of(window);
  }
  co_return read;
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
  LoadReport report;
  std::vector<Loaded> to_load;
  std::vector<Tensor> tensors;
  std::vector<DType> types;
  std::optional<PartsToLoad> parts;
  std::exception_ptr failed = failure_of([&] {
    to_load = Matching(files->folder, options, report).of(state, from);
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
  Task<std::int64_t> filled =
      fill(*world, *files, StoredRanges(to_load, std::move(held), files->folder), *parts);
  report.bytes = co_await std::move(filled);
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
