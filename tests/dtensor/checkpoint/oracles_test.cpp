// Files that safetensors and transformers wrote (tests/hf/make_files.py), into many layouts; and
// hostile files with the verdict of safetensors (tests/hf/make_attacks.py).
#include <fstream>
#include <map>
#include <sstream>

#include "dtensor/checkpoint/model_folder.h"
#include "tests/dtensor/checkpoint/saved_states.h"

namespace coshard::testing {
namespace {

struct ExpectedTensor {
  std::string name, dtype;
  Shape shape;
  std::uint64_t hash = 0;
};

std::string path_in_hf(const std::string& name) { return str_cat(COSHARD_HF "/", name); }

// By model.
std::map<std::string, std::vector<ExpectedTensor>> expected_tensors() {
  std::ifstream in(path_in_hf("files/expected.txt"));
  std::map<std::string, std::vector<ExpectedTensor>> all;
  std::string model, sizes, hash;
  for (ExpectedTensor t; in >> model >> t.name >> t.dtype >> sizes >> hash;) {
    t.shape = {};
    std::istringstream each(sizes == "-" ? "" : sizes);
    for (std::string size; std::getline(each, size, ',');) t.shape.push_back(std::stoll(size));
    t.hash = std::stoull(hash, nullptr, 16);
    all[model].push_back(t);
  }
  return all;
}

std::optional<DType> dtype_called(const std::string& name) {
  const std::map<std::string, DType> known{
      {"F32", DType::F32}, {"F64", DType::F64}, {"BF16", DType::BF16}, {"F16", DType::F16},
      {"I64", DType::I64}, {"I32", DType::I32}, {"BOOL", DType::Bool}};
  const auto found = known.find(name);
  return found == known.end() ? std::nullopt : std::optional(found->second);
}

// FNV-1a.
std::uint64_t hash_of_bits(const Tensor& tensor) {
  std::uint64_t hash = 0xcbf29ce484222325;
  std::vector<unsigned char> bytes(static_cast<std::size_t>(tensor.numel()) *
                                   size_of(tensor.dtype()));
  if (!bytes.empty()) tensor.device()->download(bytes.data(), tensor.const_data(), bytes.size());
  for (const unsigned char byte : bytes) hash = (hash ^ byte) * 0x100000001b3;
  return hash;
}

// Those of dtypes that coshard has, in this layout where their dimensions permit.
State zeros_as(World& world, const std::vector<ExpectedTensor>& tensors, const Meshed& place) {
  const DeviceMesh mesh = mesh_of(world, place);
  State state;
  for (const ExpectedTensor& t : tensors) {
    const std::optional<DType> dtype = dtype_called(t.dtype);
    if (!dtype) continue;
    Layout fits = place.layout;
    for (int m = 0; m < fits.ndim(); ++m)
      if (fits[m].is_sharded() && fits[m].dim >= static_cast<int>(t.shape.size()))
        fits[m] = Replicate();
    state.add(t.name, distribute_tensor(zeros(world.device(), t.shape, *dtype), mesh, fits));
  }
  return state;
}

TEST(Oracles, S5LoadsWhatSafetensorsAndTransformersWrote) {
  const auto models = expected_tensors();
  ASSERT_EQ(models.size(), 19U);
  for (const Meshed& place : kPlacements) {
    if (place.layout.has_partial()) continue;
    on_ranks(ranks_of(place), [&](World& world) -> Task<void> {
      for (const auto& [model, tensors] : models) {
        const State state = zeros_as(world, tensors, place);
        LoadOptions options;
        options.strict = false;  // types.safetensors has dtypes that no tensor here has
        Task<LoadReport> loading = load(state, path_in_hf(str_cat("files/", model)), options);
        const LoadReport report = co_await std::move(loading);
        EXPECT_TRUE(report.missing.empty() && report.cast.empty()) << model;
        EXPECT_EQ(report.unexpected.size(), tensors.size() - state.size()) << model;
        for (const ExpectedTensor& t : tensors) {
          const NamedState* found = state.find(t.name);
          if (found == nullptr) continue;
          EXPECT_EQ(hash_of_bits(full_tensor(found->tensor)), t.hash)
              << model << ' ' << t.name << ' ' << place.layout;
        }
      }
    });
  }
}

TEST(Oracles, S10NamesDtypesThatNoTensorHasOnlyWhenAskedFor) {
  const std::string path = path_in_hf("files/types.safetensors");
  const ModelFolder model(path);
  std::size_t listed = 0;
  const auto models = expected_tensors();
  for (const ExpectedTensor& t : models.at("types.safetensors")) {
    ASSERT_TRUE(model.find(t.name)) << t.name;
    EXPECT_EQ(to_string(model.find(t.name)->tensor.type), t.dtype);
    ++listed;
  }
  EXPECT_EQ(model.size(), listed);
  alone([&](World& world) -> Task<void> {
    State state;
    state.add("F8_E4M3.row", zeros(world.device(), {7}, DType::F32));
    LoadOptions options;
    options.strict = false;
    options.cast = Cast::Any;
    Task<std::string> loading = refusal_of_load(state, path, options);
    const std::string text = co_await std::move(loading);
    expect_names(text, {"types.safetensors", "'F8_E4M3.row'", "F8_E4M3 there"});
  });
}

TEST(Oracles, S6RefusesEveryAttackByFileAndKey) {
  std::ifstream in(path_in_hf("attacks/attacks.txt"));
  std::string name, verdict, told;
  int refused = 0, by_both = 0;
  while (in >> name >> verdict && std::getline(in >> std::ws, told)) {
    const std::string path = path_in_hf(str_cat("attacks/", name, ".safetensors"));
    try {
      const ModelFolder model(path);
      ADD_FAILURE() << name << " is taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::BadInput) << name;
      const std::string text = error.message();
      EXPECT_TRUE(text.starts_with(path + ": ")) << text;
      EXPECT_CONTAINS(text.substr(path.size()), told) << name;
      EXPECT_EQ(text.find('\n'), std::string::npos) << name;
      EXPECT_EQ(text.find("json.exception"), std::string::npos) << text;
    }
    ++refused;
    by_both += verdict == "refused" ? 1 : 0;
  }
  EXPECT_GE(refused, 41);
  EXPECT_GE(by_both, 41);
}

}  // namespace
}  // namespace coshard::testing
