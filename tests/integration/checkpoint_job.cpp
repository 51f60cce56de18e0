// A program that keeps checkpoints, for checkpoint_faults_test.py and checkpoint_kills_test.py.
//
//   checkpoint_job train FOLDER RANKS LAST   resumes, then saves each step up to LAST; in the
//                                            background with BACKGROUND=1
//   checkpoint_job check                     resumes from each folder that a line of stdin names
//   checkpoint_job losses FOLDER LAST        the same as train, of a model that learns, in a rank of
//                                            each process
//
// The state of `train` is a function of its step, so that a mixture of two shows. Prints "resumed N",
// "saved N", "mixture …", "error …"; `losses` also "rank R is process P" and "loss N X".
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include <coshard/coshard.h>
#include "tests/integration/recorded_disk.h"

namespace cs = coshard;

namespace {

struct Model : cs::Module {
  explicit Model(cs::World& world)
      : w(cs::zeros(world.device(), {7, 5}, cs::DType::F64)),
        b(cs::zeros(world.device(), {3}, cs::DType::BF16)) {
    register_parameter("w", w);
    register_parameter("b", b);
  }
  cs::Tensor w, b;
};

// All that is saved, of one rank.
struct Training {
  explicit Training(cs::World& world)
      : model(world), optimizer({model.w, model.b}, {.lr = 0.1, .momentum = 0.9}) {}
  void become(std::int64_t step) {
    const cs::NoGradGuard off;
    cs::fill_(model.w, static_cast<double>(step));
    cs::fill_(model.b, static_cast<double>(step));
    optimizer.lr = static_cast<double>(step);
    position = 1000 + step;
  }
  bool is(std::int64_t step) const {
    const auto value = static_cast<double>(step);
    for (const cs::Tensor& x : {model.w, model.b})
      for (const double element : x.to_vector())
        if (element != value) return false;
    return optimizer.lr == value && position == 1000 + step;
  }
  Model model;
  cs::SGD optimizer;
  std::int64_t position = 0;
};

bool in_background() { return std::getenv("BACKGROUND") != nullptr; }

// The step that it resumed from is told, before any other is saved.
cs::Task<void> train(cs::World& world, std::string folder, std::int64_t last) {
  Training training(world);
  const bool background = in_background();
  cs::Checkpoints checkpoints(training.model, folder, {.every = background ? 1 : 0, .keep = 2});
  checkpoints.add("optimizer", training.optimizer).add("position", training.position);
  cs::Task<std::int64_t> resuming = checkpoints.resume();
  std::int64_t step = co_await std::move(resuming);
  const bool right = step == 0 || training.is(step);
  if (world.rank() == 0) std::cout << (right ? "resumed " : "mixture at ") << step << std::endl;
  const auto tell = [&](std::int64_t saved) {
    if (world.rank() > 0) return;
    note_on_disk("saved " + std::to_string(saved));
    std::cout << "saved " << saved << std::endl;
  };
  const std::int64_t first = step;
  while (step < last) {
    training.become(++step);
    cs::Task<void> saved = background ? checkpoints.after(step) : checkpoints.save(step);
    co_await std::move(saved);
    if (!background)
      tell(step);
    else if (step - 1 > first)
      tell(step - 1);  // was awaited before this one began
  }
  if (!background) co_return;
  cs::Task<void> finished = checkpoints.finish();
  co_await std::move(finished);
  if (last > first) tell(last);
}

// Batches come from the common random stream, which is saved, too.
cs::Task<void> learn(cs::World& world, std::string folder, std::int64_t last) {
  std::cout << cs::str_cat("rank ", world.rank(), " is process ", ::getpid(), "\n") << std::flush;
  cs::manual_seed(1);
  cs::nn::MLP model({.dim = 64, .ffn = 192}, world);
  cs::fully_shard(model, cs::init_device_mesh(world, {world.size()}, {"ranks"}));
  cs::AdamW optimizer(model.parameters(), {.lr = 1e-2});
  const bool background = in_background();
  cs::Checkpoints checkpoints(model, folder, {.every = background ? 1 : 0, .keep = 2});
  checkpoints.add("optimizer", optimizer);
  cs::Task<std::int64_t> resuming = checkpoints.resume();
  std::int64_t step = co_await std::move(resuming);
  const auto tell = [&](const std::string& line) {
    if (world.rank() == 0) std::cout << line + "\n" << std::flush;
  };
  tell(cs::str_cat("resumed ", step));
  while (step < last) {
    const cs::Tensor x = cs::randn(world.device(), {8, 64});
    cs::Task<cs::Tensor> forward = model.forward(x);
    const cs::Tensor y = co_await std::move(forward);
    const cs::Tensor loss = cs::mean((y - x) * (y - x));
    optimizer.zero_grad();
    co_await cs::backward(loss);
    cs::Task<void> stepped = optimizer.step();
    co_await std::move(stepped);
    ++step;
    char exact[64];
    std::snprintf(exact, sizeof exact, "%a", loss.item());
    tell(cs::str_cat("loss ", step, " ", exact));
    cs::Task<void> saved = background ? checkpoints.after(step) : checkpoints.save(step);
    co_await std::move(saved);
  }
  cs::Task<void> finished = checkpoints.finish();
  co_await std::move(finished);
}

void run(const std::string& folder, int ranks, std::int64_t last) {
  cs::WorldOptions options;
  options.ranks = ranks;
  cs::run_ranks(options, [&](cs::World& world) { return train(world, folder, last); });
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args.size() == 3 && args[0] == "losses") {
    cs::WorldOptions options;
    options.threads = 1;
    return cs::run(options,
                   [&](cs::World& world) { return learn(world, args[1], std::stoll(args[2])); });
  }
  if (args.size() == 4 && args[0] == "train") {
    try {
      run(args[1], std::stoi(args[2]), std::stoll(args[3]));
      return 0;
    } catch (const std::exception& error) {
      std::cerr << "error: " << error.what() << std::endl;
      return 1;
    }
  }
  for (std::string folder; std::getline(std::cin, folder);) {
    try {
      run(folder, 1, 0);
    } catch (const std::exception& error) {
      std::cout << "error: " << error.what() << std::endl;
    }
  }
  return 0;
}
