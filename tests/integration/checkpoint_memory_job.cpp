// A program that tells what saving and loading cost it in memory, for checkpoint_memory_test.py.
//
//   checkpoint_memory_job saves FOLDER RANKS MEGABYTES SAVES   saves a model of that size after each
//                                                              step; in the background with
//                                                              BACKGROUND=1, awaiting each tenth
//   checkpoint_memory_job load FROM TO LAYERS                  loads a deferred model, cut over the
//                                                              processes, and saves it again
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include <coshard/coshard.h>

namespace cs = coshard;

namespace {

constexpr std::int64_t kColumns = 1024, kDim = 2048;

// "VmRSS:" and so on, in KiB.
std::int64_t status_of_process(const std::string& wanted) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (std::int64_t kib = 0; word == wanted && status >> kib) return kib;
  return -1;
}

// From now on VmHWM is the most since now.
void forget_peak() { std::ofstream("/proc/self/clear_refs") << 5 << std::flush; }

std::ptrdiff_t open_files() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return std::distance(begin(files), end(files));
}

struct Model : cs::Module {
  explicit Model(cs::Tensor values) : w(std::move(values)) { register_parameter("w", w); }
  cs::Tensor w;
};

// Lines of rank 0: "save N rss KIB peak KIB files COUNT"; save 0 is the state without any.
cs::Task<void> saves(cs::World& world, std::string folder, std::int64_t megabytes,
                     std::int64_t last) {
  const cs::DeviceMesh mesh = cs::init_device_mesh(world, {world.size()}, {"ranks"});
  const std::int64_t rows = megabytes * 1'000'000 / kColumns / 4 / world.size();
  Model model(cs::from_local(cs::full(world.device(), {rows, kColumns}, 1), mesh, {cs::Shard(0)}));
  const bool background = std::getenv("BACKGROUND") != nullptr;
  cs::Checkpoints checkpoints(model, folder, {.every = background ? 1 : 0, .keep = 1});
  cs::Task<void> started = checkpoints.start();
  co_await std::move(started);
  for (std::int64_t step = 0; step <= last; ++step) {
    {
      const cs::NoGradGuard off;
      cs::fill_(model.w, static_cast<double>(step));
    }
    if (step > 0) {
      cs::Task<void> saved = background ? checkpoints.after(step) : checkpoints.save(step);
      co_await std::move(saved);
    }
    if (step % 10 == 0 || step == last) {
      cs::Task<void> finished = checkpoints.finish();
      co_await std::move(finished);
    }
    cs::Collective all;
    cs::Work met = world.communicator()->issue(all);
    co_await met;
    if (world.rank() > 0) continue;
    std::cout << cs::str_cat("save ", step, " rss ", status_of_process("VmRSS:"), " peak ",
                             status_of_process("VmHWM:"), " files ", open_files(), "\n")
              << std::flush;
    if (step == 0) forget_peak();
  }
}

struct Layers : cs::Module {
  Layers(cs::World& world, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i)
      layers.append(std::make_shared<cs::nn::Linear>(kDim, kDim, world,
                                                     cs::nn::LinearOptions{.bias = false}));
    register_module("layers", layers);
  }
  cs::ModuleList<cs::nn::Linear> layers;
};

// Each rank tells "rank R peak KIB base KIB": the whole process, and what it was at the start.
cs::Task<void> loads(cs::World& world, std::string from, std::string to, std::int64_t layers) {
  const std::int64_t base = status_of_process("VmRSS:");
  std::shared_ptr<Layers> model;
  {
    const cs::DeferredInit scope;
    model = std::make_shared<Layers>(world, layers);
  }
  const cs::DeviceMesh mesh = cs::init_device_mesh(world, {world.size()}, {"ranks"});
  for (std::size_t i = 0; i < model->layers.size(); ++i) cs::fully_shard(model->layers[i], mesh);
  cs::Task<cs::LoadReport> loading = cs::load(*model, from);
  const cs::LoadReport report = co_await std::move(loading);
  const std::int64_t loaded = status_of_process("VmHWM:");
  cs::Task<void> saved = cs::save(*model, to);
  co_await std::move(saved);
  std::cout << cs::str_cat("rank ", world.rank(), " base ", base, " loaded ", loaded, " peak ",
                           status_of_process("VmHWM:"), " read ", report.bytes, "\n")
            << std::flush;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  cs::WorldOptions options;
  options.threads = 1;
  if (args.size() == 5 && args[0] == "saves") {
    options.ranks = std::stoi(args[2]);
    return cs::run(options, [&](cs::World& world) {
      return saves(world, args[1], std::stoll(args[3]), std::stoll(args[4]));
    });
  }
  if (args.size() == 4 && args[0] == "load")
    return cs::run(options, [&](cs::World& world) {
      return loads(world, args[1], args[2], std::stoll(args[3]));
    });
  return 2;
}
