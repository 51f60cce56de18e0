// `coshard ckpt merge`: values and what it refuses. tests/hf/lora_test.py asks PEFT.
#include "tools/ckpt/merge.h"

#include <gtest/gtest.h>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "dtensor/checkpoint/model_folder.h"
#include "styles/adapter_config.h"
#include "tests/dtensor/checkpoint/saved_states.h"

namespace coshard::tools {
namespace {

using testing::bytes_of;
using testing::message_of;
using testing::ScratchFolder;
using testing::stored_file;

std::string bits(const std::vector<float>& values) {
  std::string data(values.size() * sizeof(float), '\0');
  std::memcpy(data.data(), values.data(), data.size());
  return data;
}

constexpr const char* kConfigJson = R"({"model_type": "llama"})";

// a.weight [2, 3] and b.weight [1], and an adapter of rank 2 of `layer`.
struct Folders {
  ScratchFolder scratch;
  explicit Folders(const std::string& layer = "a", const std::string& sizes = "3",
                   const std::string& weight = "a.weight", const std::string& shape = "[2,3]") {
    scratch.write(
        "base/model.safetensors",
        stored_file("{\"" + weight + R"(":{"dtype":"F32","shape":)" + shape +
                        R"(,"data_offsets":[0,24]},)"
                        R"("b.weight":{"dtype":"F32","shape":[1],"data_offsets":[24,28]}})",
                    bits({1, 2, 3, 4, 5, 6, 7})));
    scratch.write("base/config.json", kConfigJson);
    const std::string name = "base_model.model." + layer + ".lora_";
    scratch.write("adapter/adapter_model.safetensors",
                  stored_file(str_cat("{\"", name, R"(A.weight":{"dtype":"F32","shape":[2,)", sizes,
                                      R"(],"data_offsets":[0,24]},")", name,
                                      R"(B.weight":{"dtype":"F32","shape":[2,2],)",
                                      R"("data_offsets":[24,40]}})"),
                              bits({1, 0, -1, 0.5, 0.25, 2, 1, 2, -1, 0})));
    scratch.write("adapter/adapter_config.json",
                  adapter_config_text({.rank = 2, .alpha = 4}, {layer}));
  }
  std::vector<float> values() const {
    const std::string bytes = bytes_of(scratch.path("out/model.safetensors"));
    const ModelFolder model(scratch.path("out"));
    std::vector<float> values(7);
    std::memcpy(values.data(), bytes.data() + model.files()[0].data_begin(), 28);
    return values;
  }
  std::string merged(const ConvertOptions& options = {}) const {
    std::ostringstream out;
    merge(scratch.path("base"), scratch.path("adapter"), scratch.path("out"), options, true, out);
    return out.str();
  }
};

TEST(CkptMerge, AddsTheScaledProductAndCopiesTheRest) {
  const Folders folders;
  const nlohmann::json told = nlohmann::json::parse(folders.merged());
  EXPECT_EQ(told["tensors"], 2);
  EXPECT_EQ(told["adapted"], 1);
  EXPECT_EQ(bytes_of(folders.scratch.path("out/config.json")), kConfigJson);
  // scale 2; B A = [[1 + 1, 0 + 0.5, -1 + 4], [-1, 0, 1]]
  EXPECT_EQ(folders.values(), (std::vector<float>{5, 3, 9, 2, 5, 8, 7}));
}

TEST(CkptMerge, AConv1dTakesTheTransposedProduct) {
  const Folders gpt2("h.c_proj", "3", "h.c_proj.weight", "[3,2]");
  gpt2.scratch.write("base/config.json", R"({"model_type": "gpt2"})");
  gpt2.merged();
  // b.weight, and the transpose of what a.weight takes above, [[4, 1, 6], [-2, 0, 2]]
  EXPECT_EQ(gpt2.values(), (std::vector<float>{7, 5, 0, 4, 4, 11, 8}));
}

TEST(CkptMerge, ConfigJsonTellsAConv1dFromALinear) {
  const Folders linear("h.c_proj", "3", "h.c_proj.weight");
  linear.merged();
  EXPECT_EQ(linear.values(), (std::vector<float>{7, 5, 3, 9, 2, 5, 8}));
  std::filesystem::remove(linear.scratch.path("base/config.json"));
  EXPECT_CONTAINS(message_of([&] { linear.merged(); }), "no config.json");
}

TEST(CkptMerge, RoundsOnceToTheNewType) {
  const Folders folders;
  folders.merged({.dtype = DType::BF16});
  const ModelFolder model(folders.scratch.path("out"));
  EXPECT_EQ(model.find("a.weight")->tensor.type, StoredType::BF16);
}

TEST(CkptMerge, TellsWhichFolderIsNotWhatItShouldBe) {
  const Folders folders;
  const ScratchFolder& scratch = folders.scratch;
  const auto told = [&](const char* base, const char* adapter) {
    return message_of([&] {
      std::ostringstream out;
      tools::merge(scratch.path(base), scratch.path(adapter), scratch.path("out"), {}, false, out);
    });
  };
  EXPECT_CONTAINS(told("adapter", "base"), "the order is BASE ADAPTER OUT: coshard ckpt merge ");
  EXPECT_CONTAINS(told("adapter", "base"),
                  str_cat(scratch.path("base"), " ", scratch.path("adapter"), " OUT"));
  EXPECT_CONTAINS(told("adapter", "adapter"), "not the model that it was trained on");
  EXPECT_CONTAINS(told("base", "base"), "base: has no adapter_config.json");
  EXPECT_CONTAINS(told("base", "none"), "none: there is no such folder");
  std::filesystem::copy(scratch.path("base"), scratch.path("step-1"));
  scratch.write("step-1/training/coshard.json", "{}");
  EXPECT_CONTAINS(told("base", "step-1"), "step-1: is a checkpoint of training");
  scratch.write("x.gguf", "GGUF and more");
  EXPECT_CONTAINS(told("x.gguf", "adapter"), "convert it first: coshard ckpt convert ");
  scratch.write("lora/model.safetensors",
                stored_file(R"({"a.lora_A.weight":{"dtype":"F32","shape":[1],)"
                            R"("data_offsets":[0,4]}})",
                            bits({1})));
  EXPECT_CONTAINS(told("lora", "adapter"), "'a.lora_A.weight'; give the model that was trained");
}

TEST(CkptMerge, RefusesLayersThatTheBaseLacks) {
  const Folders other("c"), narrow("a", "3,1");
  EXPECT_CONTAINS(message_of([&] { other.merged(); }), "no 'c.weight'");
  EXPECT_CONTAINS(message_of([&] { narrow.merged(); }), "[2,3,1]");
  const Folders vector("b");
  EXPECT_CONTAINS(message_of([&] { vector.merged(); }), "[2,3], but the model's is [1]");
}

}  // namespace
}  // namespace coshard::tools
