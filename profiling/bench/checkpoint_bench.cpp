#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include <coshard/dtensor/checkpoint/load.h>
#include <coshard/dtensor/checkpoint/save.h>
#include <coshard/dtensor/distribute/distribute.h>
#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/runtime/launch/world.h>
#include <coshard/styles/checkpoints.h>
#include "profiling/bench/benches.h"
#include "profiling/bench/peer.h"
#include "profiling/bench/timed.h"
#include "profiling/child_process.h"

namespace coshard::bench {
namespace {

namespace fs = std::filesystem;
using Samples = std::map<std::string, std::vector<double>>;

constexpr int kTensors = 16, kColumns = 2048;
constexpr double kMega = 1e6, kGiga = 1e9;

struct SavedLayout {
  const char* name;
  Placement placement;
};
const std::vector<SavedLayout>& layouts() {
  static const std::vector<SavedLayout> all{{"S0", Shard(0)}, {"S1", Shard(1)}, {"R", Replicate()}};
  return all;
}

State state_of(const DeviceMesh& mesh, World& world, std::int64_t bytes, Placement placement) {
  State state;
  const std::int64_t rows = bytes / kTensors / kColumns / 4;
  for (int i = 0; i < kTensors; ++i)
    state.add(fmt::format("layers.{}.weight", i),
              distribute_tensor(full(world.device(), {rows, kColumns}, i + 1.0), mesh, placement));
  return state;
}

double own_cpu_seconds() {
  rusage used = {};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

// The file's share that is in the page cache.
double cached_share(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat known = {};
  if (file < 0 || ::fstat(file, &known) != 0) return 1;
  const auto size = static_cast<std::size_t>(known.st_size);
  void* const memory = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((size + page - 1) / page);
  const bool told = memory != MAP_FAILED && ::mincore(memory, size, pages.data()) == 0;
  if (memory != MAP_FAILED) ::munmap(memory, size);
  ::close(file);
  if (!told) return 1;
  return static_cast<double>(std::ranges::count_if(pages, [](auto p) { return (p & 1) != 0; })) /
         static_cast<double>(pages.size());
}

void drop_from_cache(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  ::fsync(file);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  ::close(file);
}

// Seconds of dd with these words; 0: it failed.
double seconds_of_dd(std::vector<std::string> words) {
  words.insert(words.begin(), "dd");
  const auto begin = std::chrono::steady_clock::now();
  return output_of(words) ? seconds_since(begin) : 0;
}

// One rank's measurements; those of rank 0 count.
class SaveRounds {
 public:
  SaveRounds(World& world, const CheckpointOptions& options, Samples& samples)
      : world_(world),
        options_(options),
        samples_(samples),
        bytes_(std::int64_t{options.megabytes} * 1'000'000),
        mesh_(init_device_mesh(world, {world.size()}, {"ranks"})) {}

  Task<void> run() {
    for (const SavedLayout& c : layouts())
      states_.push_back(state_of(mesh_, world_, bytes_, c.placement));
    for (int round = -1; round < options_.rounds; ++round) {  // the first one warms up
      dd_writes(round);
      for (std::size_t i = 0; i < layouts().size(); ++i) {
        Task<void> saved = save_once(i, round);
        co_await std::move(saved);
      }
      dd_reads(round);
      for (std::size_t i = 0; i < layouts().size(); ++i) {
        Task<void> loaded = load_once(i, round);
        co_await std::move(loaded);
      }
    }
  }

 private:
  std::string at(const char* name) const { return options_.folder + "/" + name; }
  std::string model(std::size_t i) const {
    return at(layouts()[i].name) + std::string("/model.safetensors");
  }
  void together() const {
    Collective call;
    world_.communicator()->issue(call).wait();
  }
  void add(const std::string& name, double value, int round) {
    if (world_.rank() == 0 && round >= 0 && value > 0) samples_[name].push_back(value);
  }
  double rate(double seconds) const {
    return seconds > 0 ? static_cast<double>(bytes_) / seconds / kMega : 0;
  }
  void dd_writes(int round) {
    together();
    if (world_.rank() > 0) return;
    const std::string count = fmt::format("count={}", std::max<std::int64_t>(1, bytes_ >> 24));
    fs::remove(at("dd"));
    const double seconds = seconds_of_dd(
        {"if=/dev/zero", "of=" + at("dd"), "bs=16M", count, "oflag=direct", "conv=fsync"});
    const auto written = static_cast<double>(fs::file_size(at("dd")));
    add("dd_write", seconds > 0 ? written / seconds / kMega : 0, round);
  }
  void dd_reads(int round) {
    together();
    if (world_.rank() > 0) return;
    drop_from_cache(at("dd"));
    const double seconds =
        seconds_of_dd({"if=" + at("dd"), "of=/dev/null", "bs=16M", "iflag=direct"});
    const auto read = static_cast<double>(fs::file_size(at("dd")));
    add("dd_read", seconds > 0 ? read / seconds / kMega : 0, round);
  }
  Task<void> save_once(std::size_t i, int round) {
    if (world_.rank() == 0) fs::remove_all(at(layouts()[i].name));
    together();
    const double cpu = own_cpu_seconds();
    const auto begin = std::chrono::steady_clock::now();
    const std::string folder = at(layouts()[i].name);
    Task<void> saved = save(states_[i], folder);
    co_await std::move(saved);
    add(fmt::format("save_{}", layouts()[i].name), rate(seconds_since(begin)), round);
    together();
    add("save_cpu", (own_cpu_seconds() - cpu) / (static_cast<double>(bytes_) / kGiga), round);
    if (world_.rank() == 0) add("save_cached", cached_share(model(i)) * 100 + 1e-9, round);
  }
  // From the file of the first layout.
  Task<void> load_once(std::size_t i, int round) {
    if (world_.rank() == 0) drop_from_cache(model(0));
    together();
    const double cpu = own_cpu_seconds();
    const auto begin = std::chrono::steady_clock::now();
    const std::string folder = at(layouts()[0].name);
    Task<LoadReport> loaded = load(states_[i], folder);
    co_await std::move(loaded);
    add(fmt::format("load_{}", layouts()[i].name), rate(seconds_since(begin)), round);
    together();
    add("load_cpu", (own_cpu_seconds() - cpu) / (static_cast<double>(bytes_) / kGiga), round);
  }

  World& world_;
  const CheckpointOptions& options_;
  Samples& samples_;
  std::int64_t bytes_;
  DeviceMesh mesh_;
  std::vector<State> states_;
};

// How much of the disk's rate saves after each step ask for, and how much longer steps may be.
struct Demand {
  const char* name;
  double share, most;
};
constexpr Demand kDemands[] = {{"at_5_percent", 0.05, 1.03}, {"at_full_rate", 1, 1.5}};

struct SavedModel : Module {
  explicit SavedModel(Tensor values) : w(std::move(values)) { register_parameter("w", w); }
  Tensor w;
};

// Steps with and without a save after each: matmuls for as long as the disk needs for the share of
// its rate. One rank's.
class StepRounds {
 public:
  StepRounds(World& world, const CheckpointOptions& options, Samples& samples)
      : world_(world), options_(options), samples_(samples) {}

  Task<void> run() {
    for (const Demand& demand : kDemands) {
      Task<void> measured = measure(demand);
      co_await std::move(measured);
    }
  }

 private:
  static constexpr double kSeconds = 0.2;  // of a step, or less where the state would be too large
  static constexpr int kSteps = 8, kMatmul = 256, kTried = 50;

  void together() const {
    Collective call;
    world_.communicator()->issue(call).wait();
  }
  void compute(int matmuls) const {
    const Tensor x = full(world_.device(), {kMatmul, kMatmul}, 1e-3);
    for (int i = 0; i < matmuls; ++i) matmul(x, x);
  }
  double seconds_of_matmul() const {
    compute(kTried);
    together();
    const auto begin = std::chrono::steady_clock::now();
    compute(kTried);
    together();
    return seconds_since(begin) / kTried;
  }
  Task<double> seconds_of_step(int matmuls, Checkpoints* checkpoints) {
    together();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kSteps; ++i) {
      compute(matmuls);
      if (checkpoints == nullptr) continue;
      Task<void> saved = checkpoints->after(++step_);
      co_await std::move(saved);
    }
    together();
    const double seconds = seconds_since(begin) / kSteps;
    if (checkpoints == nullptr) co_return seconds;
    Task<void> finished = checkpoints->finish();
    co_await std::move(finished);
    co_return seconds;
  }
  Task<void> measure(const Demand& demand) {
    together();
    const auto dd = samples_.find("dd_write");  // of rank 0, which adds others after the next one
    if (dd == samples_.end()) co_return;
    const double rate = robust_stats(dd->second).median * kMega * demand.share;
    const double bytes = std::min(options_.megabytes * kMega, rate * kSeconds);
    const auto rows = static_cast<std::int64_t>(bytes) / world_.size() / kColumns / 4;
    const DeviceMesh mesh = init_device_mesh(world_, {world_.size()}, {"ranks"});
    SavedModel model(from_local(full(world_.device(), {rows, kColumns}, 1), mesh, {Shard(0)}));
    Checkpoints checkpoints(model, fmt::format("{}/{}", options_.folder, demand.name),
                            {.every = 1, .keep = 1});
    Task<void> started = checkpoints.start();
    co_await std::move(started);
    const int matmuls = static_cast<int>(bytes / rate / seconds_of_matmul()) + 1;
    for (int round = -1; round < options_.rounds; ++round) {  // the first one warms up
      Task<double> plain = seconds_of_step(matmuls, nullptr);
      const double without = co_await std::move(plain);
      Task<double> saving = seconds_of_step(matmuls, &checkpoints);
      const double with = co_await std::move(saving);
      if (world_.rank() > 0 || round < 0) continue;
      samples_[fmt::format("step_{}", demand.name)].push_back(without * 1e3);
      samples_[fmt::format("saved_step_{}", demand.name)].push_back(with * 1e3);
      samples_[fmt::format("saves_{}", demand.name)].push_back(with / without);
    }
  }

  World& world_;
  const CheckpointOptions& options_;
  Samples& samples_;
  std::int64_t step_ = 0;
};

Result result_of(const std::string& name, const std::vector<double>& values) {
  const RobustStats stats = robust_stats(values);
  if (name.starts_with("saves_"))
    for (const Demand& demand : kDemands)
      if (name.ends_with(demand.name)) return measured(name, stats, "x", demand.most);
  if (name.find("step_") != std::string::npos) return measured(name, stats, "ms");
  if (name.ends_with("_cpu")) return measured(name, stats, "s/GB");
  if (name.ends_with("_cached")) return measured(name, stats, "%", 5);
  return measured(name, stats, "MB/s", std::nullopt, true);
}

void add_ratios(Report& report) {
  const auto add = [&](const std::string& name, const char* peer, std::optional<double> target) {
    const Result *ours = report.find(name), *other = report.find(peer);
    if (ours != nullptr && other != nullptr)
      report.results.push_back(
          ratio(fmt::format("{}_of_{}", name, peer), ours->value / other->value, target));
  };
  for (const SavedLayout& c : layouts()) {
    add(fmt::format("save_{}", c.name), "dd_write", 0.85);
    add(fmt::format("load_{}", c.name), "dd_read", c.name == std::string("S0") ? 0.9 : 0.8);
  }
}

void beside_dcp(Report& report, const CheckpointOptions& options) {
  const std::map<std::string, double> peer =
      run_peer(options.peer, {"--megabytes", std::to_string(options.megabytes), "--folder",
                              options.folder + "/dcp", "--rounds", std::to_string(options.rounds)});
  for (const auto& [name, value] : peer)
    report.results.push_back(
        {"dcp_" + name, value, name.ends_with("_cpu") ? "s/GB" : "MB/s", {}, false, {}, {}});
  const auto against = [&](const char* ours, const char* theirs, double target) {
    const Result *a = report.find(ours), *b = report.find(theirs);
    if (a != nullptr && b != nullptr)
      report.results.push_back(
          ratio(fmt::format("{}_of_{}", ours, theirs), a->value / b->value, target));
  };
  against("save_S0", "dcp_save", 1.3);
  against("load_S0", "dcp_load", 1.5);
}

}  // namespace

Report bench_checkpoint(const CheckpointOptions& options) {
  Report report("checkpoint");
  report.note("ranks", options.ranks);
  report.note("megabytes", options.megabytes);
  CheckpointOptions own = options;
  own.folder += fmt::format("/coshard-bench-{}", ::getpid());
  fs::create_directories(own.folder);
  WorldOptions world = options.world;
  world.ranks = options.ranks;
  Samples samples;
  run_ranks(world, [&](World& world) -> Task<void> {
    SaveRounds rounds(world, own, samples);
    Task<void> measured = rounds.run();
    co_await std::move(measured);
    StepRounds steps(world, own, samples);
    Task<void> stepped = steps.run();
    co_await std::move(stepped);
  });
  for (const auto& [name, values] : samples) report.results.push_back(result_of(name, values));
  add_ratios(report);
  if (!options.peer.empty()) beside_dcp(report, own);
  fs::remove_all(own.folder);
  return report;
}

}  // namespace coshard::bench
