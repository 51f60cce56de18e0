#pragma once
// What tests of save and load share: a state in many layouts, and what they refuse.
#include <coshard/dtensor/checkpoint/load.h>
#include <coshard/dtensor/checkpoint/save.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/ops/ops.h>
#include "dtensor/checkpoint/training_files.h"
#include "tests/dtensor/checkpoint/stored_files.h"
#include "tests/support/ranks.h"

namespace coshard::testing {

inline std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Meshed {
  std::vector<int> mesh;
  Layout layout;
};
inline const std::vector<Meshed> kPlacements{
    {{1}, {Replicate()}},
    {{2}, {Shard(0)}},
    {{2}, {Shard(1)}},
    {{3}, {Shard(0)}},
    {{3}, {Shard(2)}},
    {{4}, {Shard(1)}},
    {{4}, {Replicate()}},
    {{2, 2}, {Replicate(), Shard(1)}},
    {{2, 2}, {Shard(0), Replicate()}},
    {{2, 2}, {Shard(0), Shard(0)}},
    {{2, 2}, {StridedShard(1, 2), Shard(1)}},
    {{2, 2}, {Partial(), Shard(0)}},
};

inline int ranks_of(const Meshed& place) {
  int ranks = 1;
  for (const int n : place.mesh) ranks *= n;
  return ranks;
}
inline DeviceMesh mesh_of(World& world, const Meshed& place) {
  const std::vector<std::string> names{"a", "b"};
  return init_device_mesh(world, place.mesh,
                          {names.begin(), names.begin() + std::ssize(place.mesh)});
}

// The same values in every layout.
inline State state_of(World& world, const DeviceMesh& mesh, const Layout& layout, double scale) {
  State state;
  const auto add = [&](const char* name, const Shape& shape, DType dtype) {
    Layout fits = layout;
    for (int m = 0; m < fits.ndim(); ++m)
      if (fits[m].is_sharded() && fits[m].dim >= static_cast<int>(shape.size()))
        fits[m] = Replicate();
    if (!is_floating(dtype)) fits = partial_as_replicate(fits);
    state.add(name, distribute_tensor(counting(world, shape, dtype, scale), mesh, fits));
  };
  add("w", {5, 4, 3}, DType::F32);
  add("narrow", {7, 3, 2}, DType::BF16);
  add("wide", {4, 6, 5}, DType::F64);
  add("ids", {3, 5, 2}, DType::I64);
  add("none", {0, 3, 2}, DType::F16);
  add("one", {}, DType::F32);
  state.add("plain", counting(world, {6}, DType::I32, scale));
  state.add("flags", eq(counting(world, {5}), 2));
  return state;
}

inline Task<void> save_it(World& world, const Meshed& place, std::string folder) {
  const DeviceMesh mesh = mesh_of(world, place);
  Task<void> saved = save(state_of(world, mesh, place.layout, 1), std::move(folder));
  co_await std::move(saved);
}

// On one rank.
inline void alone(const std::function<Task<void>(World&)>& body) { on_ranks(1, body); }

inline Task<std::string> refusal_of_load(State state, std::string path, LoadOptions options = {}) {
  std::string text;
  try {
    Task<LoadReport> loading = load(std::move(state), std::move(path), options);
    co_await std::move(loading);
  } catch (const Error& error) {
    text = error.message();
  }
  co_return text;
}

inline void expect_names(const std::string& text, std::initializer_list<const char*> names) {
  for (const char* name : names)
    EXPECT_NE(text.find(name), std::string::npos) << name << ": " << text;
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
}

inline Task<std::string> refusal_of_save(State state, std::string folder, SaveOptions options = {},
                                         TrainingFiles beside = {}) {
  std::string text;
  try {
    Task<void> saving = save_with(std::move(state), std::move(folder), options, std::move(beside));
    co_await std::move(saving);
  } catch (const Error& error) {
    text = error.message();
  }
  co_return text;
}

}  // namespace coshard::testing
