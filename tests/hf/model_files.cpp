// Writes and reads files of models for files_test.py.
//   model_files write FOLDER FIRST COUNT: states of seeds FIRST, FIRST + 1, … as FOLDER/SEED, and of
//     each tensor the line "SEED NUMBER NAME DTYPE SIZES"; byte k of tensor NUMBER is
//     (131 k + 17 NUMBER + SEED) mod 256, of BOOL its lowest bit.
//   model_files read < PATHS: of each path, "taken" or "refused: WHY".
//   model_files resave FROM TO RANKS: opens a model, cut by its plan, loads and saves it.
//   model_files copy FROM TO RANKS: loads all tensors and saves them, cut along their first dimension.
#include <coshard/dtensor/checkpoint/save.h>

#include <filesystem>
#include <iostream>
#include <random>

#include <coshard/dtensor/checkpoint/load.h>
#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/mesh/device_mesh.h>
#include <coshard/runtime/launch/world.h>
#include <coshard/styles/nn/open_model.h>
#include <coshard/styles/state_dict.h>
#include "dtensor/checkpoint/model_folder.h"

namespace cs = coshard;
namespace {

constexpr cs::DType kTypes[] = {cs::DType::F32, cs::DType::F64, cs::DType::BF16, cs::DType::F16,
                                cs::DType::I64, cs::DType::I32, cs::DType::Bool};

cs::Tensor drawn_tensor(cs::World& world, const cs::Shape& shape, cs::DType dtype, unsigned seed,
                        unsigned number) {
  cs::Tensor tensor = cs::zeros(world.device(), shape, dtype);
  auto* bytes = static_cast<unsigned char*>(tensor.data());
  const auto count = static_cast<std::size_t>(cs::numel(shape)) * cs::size_of(dtype);
  for (std::size_t k = 0; k < count; ++k) {
    const auto value = static_cast<unsigned>(131 * k + 17 * number + seed);
    bytes[k] = static_cast<unsigned char>(dtype == cs::DType::Bool ? value & 1 : value);
  }
  return tensor;
}

cs::State drawn_state(cs::World& world, unsigned seed) {
  std::mt19937 draw(seed);
  cs::State state;
  const unsigned count = 1 + draw() % 12;
  for (unsigned number = 0; number < count; ++number) {
    constexpr int kMaxDims = 8, kLargest = 4;
    cs::Shape shape;
    for (unsigned dims = draw() % (kMaxDims + 1); dims > 0; --dims) {
      const bool is_empty = draw() % 40 == 0;
      shape.push_back(is_empty ? 0 : 1 + draw() % (dims > kLargest ? 2 : kLargest));
    }
    const cs::DType dtype = kTypes[draw() % std::size(kTypes)];
    const std::string name = cs::str_cat("layers.", draw() % 3, ".\xc3\xa4 \"", number, "\\");
    std::string sizes;
    for (const std::int64_t size : shape) sizes += cs::str_cat(sizes.empty() ? "" : ",", size);
    std::cout << seed << '\t' << number << '\t' << name << '\t' << cs::to_string(dtype) << '\t'
              << sizes << '\n';
    state.add(name, drawn_tensor(world, shape, dtype, seed, number));
  }
  return state;
}

cs::Task<void> write_states(cs::World& world, std::string folder, unsigned first, unsigned count) {
  for (unsigned seed = first; seed < first + count; ++seed) {
    cs::SaveOptions options;
    constexpr std::int64_t kSmallFile = 64;
    if (seed % 2 == 1) options.file_bytes = kSmallFile;
    cs::Task<void> saving =
        cs::save(drawn_state(world, seed), cs::str_cat(folder, '/', seed), options);
    co_await std::move(saving);
  }
}

void read_paths() {
  for (std::string path; std::getline(std::cin, path);) {
    try {
      const cs::ModelFolder model(path);
      std::cout << "taken\n";
    } catch (const cs::Error& error) {
      std::cout << "refused: " << error.message() << '\n';
    }
  }
}

cs::Task<void> copy_files(cs::World& world, std::string from, std::string to) {
  const cs::ModelFolder files(from);
  const cs::DeviceMesh mesh = cs::init_device_mesh(world, {world.size()}, {"ranks"});
  cs::State state;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const cs::StoredTensor t = files[i].tensor;
    const std::optional<cs::DType> dtype = cs::to_dtype(t.type);
    CS_REQUIRE(dtype, from, ": ", t.name, " is of type ", t.type);
    const cs::Shape shape(t.shape.begin(), t.shape.end());
    const cs::Layout layout(shape.empty() ? cs::Replicate() : cs::Shard(0));
    state.add(std::string(t.name), cs::zeros(mesh, layout, shape, *dtype));
  }
  cs::Task<cs::LoadReport> loading = cs::load(state, from);
  co_await std::move(loading);
  cs::Task<void> saving = cs::save(state, to);
  co_await std::move(saving);
}

cs::Task<void> resave_model(cs::World& world, std::string from, std::string to) {
  const auto model = cs::nn::open_model(from, world);
  const cs::DeviceMesh mesh = cs::init_device_mesh(world, {world.size()}, {"tp"});
  cs::Task<void> cut = cs::parallelize_module(*model, mesh, model->plan());
  co_await std::move(cut);
  cs::Task<cs::LoadReport> loading = cs::load(*model, from);
  co_await std::move(loading);
  cs::Task<void> saving = cs::save(*model, to);
  co_await std::move(saving);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args == std::vector<std::string>{"read"}) {
    read_paths();
    return 0;
  }
  if (args.size() != 4 || (args[0] != "write" && args[0] != "copy" && args[0] != "resave")) {
    std::cerr << "usage: model_files write FOLDER FIRST COUNT | model_files read < PATHS | "
                 "model_files copy|resave FROM TO RANKS\n";
    return 2;
  }
  const auto number = static_cast<unsigned>(std::stoul(args[3]));
  cs::WorldOptions options;
  options.ranks = args[0] == "write" ? 1 : static_cast<int>(number);
  cs::run_ranks(options, [&](cs::World& world) {
    if (args[0] == "copy") return copy_files(world, args[1], args[2]);
    if (args[0] == "resave") return resave_model(world, args[1], args[2]);
    return write_states(world, args[1], static_cast<unsigned>(std::stoul(args[2])), number);
  });
  return 0;
}
