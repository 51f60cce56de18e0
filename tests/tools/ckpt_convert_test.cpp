// `coshard ckpt convert`: values, files and what it refuses. tests/hf/files_test.py asks torch.
#include "tools/ckpt/convert.h"

#include <gtest/gtest.h>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "dtensor/checkpoint/manifest.h"
#include "dtensor/checkpoint/model_folder.h"
#include "tests/dtensor/checkpoint/stored_files.h"
#include "tools/ckpt/ckpt.h"

namespace coshard::tools {
namespace {

using testing::message_of;
using testing::ScratchFolder;
using testing::stored_file;

// w: F32[n], n: I64[1], and b: BOOL[2]
std::string weights(const std::vector<float>& w) {
  std::string data(sizeof(std::int64_t) + w.size() * sizeof(float) + 2, '\0');
  const std::int64_t count = 7;
  std::memcpy(data.data(), &count, sizeof count);
  std::memcpy(data.data() + sizeof count, w.data(), w.size() * sizeof(float));
  data[data.size() - 2] = '\1';
  const std::size_t end = sizeof count + w.size() * sizeof(float);
  return stored_file(
      str_cat(R"({"n":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},)",
              R"("w":{"dtype":"F32","shape":[)", w.size(), R"(],"data_offsets":[8,)", end,
              R"(]},"b":{"dtype":"BOOL","shape":[2],"data_offsets":[)", end, ",", end + 2, "]}}"),
      data);
}

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

nlohmann::json converted(const std::string& from, const std::string& to,
                         const ConvertOptions& options = {}) {
  std::ostringstream out;
  convert(from, to, options, true, out);
  return nlohmann::json::parse(out.str());
}

template <class Bits>
std::vector<Bits> bits_of_tensor(const std::string& path, std::string_view name) {
  const ModelFolder model(path);
  const auto [file, tensor] = *model.find(name);
  const std::string bytes = read(model.files()[file].path());
  std::vector<Bits> bits(tensor.elements());
  std::memcpy(bits.data(), bytes.data() + model.files()[file].data_begin() + tensor.begin,
              bits.size() * sizeof(Bits));
  return bits;
}

bool has_no_difference(const std::string& a, const std::string& b) {
  std::ostringstream out;
  return !differ(a, b, true, out);
}

TEST(CkptConvert, S66RoundsToNearestEvenAndKeepsIntegers) {
  const ScratchFolder folder;
  const std::vector<float> values{1,
                                  -0.0F,
                                  1.00390625F,
                                  1.01171875F,
                                  3.4e38F,
                                  std::numeric_limits<float>::infinity(),
                                  std::numeric_limits<float>::quiet_NaN()};
  const std::string from = folder.write("a/model.safetensors", weights(values));
  const auto json = converted(folder.path("a"), folder.path("b"), {.dtype = DType::BF16});
  EXPECT_EQ(json["tensors"], 3);
  EXPECT_EQ(json["cast"], 1);
  EXPECT_EQ(json["overflown"]["w"], 1);  // 3.4e38; what was infinite has not become so
  const auto bits = bits_of_tensor<std::uint16_t>(folder.path("b"), "w");
  EXPECT_EQ(std::vector<std::uint16_t>(bits.begin(), bits.begin() + 6),
            (std::vector<std::uint16_t>{0x3f80, 0x8000, 0x3f80, 0x3f82, 0x7f80, 0x7f80}));
  EXPECT_TRUE(std::isnan(std::bit_cast<float>(static_cast<std::uint32_t>(bits[6]) << 16)));
  EXPECT_EQ(bits_of_tensor<std::int64_t>(folder.path("b"), "n"), std::vector<std::int64_t>{7});
  EXPECT_EQ(bits_of_tensor<std::uint8_t>(folder.path("b"), "b"), (std::vector<std::uint8_t>{1, 0}));
  converted(from, folder.path("c"), {.dtype = DType::F64});
  const auto wide = bits_of_tensor<std::uint64_t>(folder.path("c"), "w");
  for (std::size_t i = 0; i < 6; ++i)
    EXPECT_EQ(std::bit_cast<double>(wide[i]), static_cast<double>(values[i])) << i;
}

TEST(CkptConvert, ATensorLongerThanWhatIsReadAtOnce) {
  const ScratchFolder folder;
  std::vector<float> values((1 << 22) + 3);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  folder.write("a/model.safetensors", weights(values));
  converted(folder.path("a"), folder.path("b"), {.dtype = DType::F64});
  converted(folder.path("b"), folder.path("c"), {.dtype = DType::F32});
  EXPECT_TRUE(has_no_difference(folder.path("a"), folder.path("c")));
  EXPECT_EQ(std::bit_cast<double>(bits_of_tensor<std::uint64_t>(folder.path("b"), "w").back()),
            static_cast<double>(values.back()));
}

TEST(CkptConvert, FilesOfAnotherSizeHoldTheSameTensors) {
  const ScratchFolder folder;
  folder.write("a/model.safetensors", weights({1, 2, 3}));
  const auto json = converted(folder.path("a"), folder.path("b"), {.file_bytes = 14});
  EXPECT_EQ(json["files"], 2);
  EXPECT_TRUE(std::filesystem::exists(folder.path("b/model.safetensors.index.json")));
  EXPECT_TRUE(has_no_difference(folder.path("a"), folder.path("b")));
  EXPECT_EQ(converted(folder.path("b"), folder.path("c"))["files"], 1);
  EXPECT_TRUE(has_no_difference(folder.path("a"), folder.path("c")));
  EXPECT_FALSE(std::filesystem::exists(folder.path("c/model.safetensors.index.json")));
}

TEST(CkptConvert, KeepsTheFilesBesideTheWeights) {
  const ScratchFolder folder;
  folder.write("a/model.safetensors", weights({1}));
  folder.write("a/config.json", R"({"model_type": "gemma", "torch_dtype": "float32", "x": [1.5]})");
  folder.write("a/tokenizer.json", "{}");
  folder.write("a/pytorch_model.bin", "old");
  folder.write("a/rust_model.ot", "old");
  folder.write("a/64.tflite", "old");
  std::filesystem::resize_file(folder.write("a/most.txt", ""), 100'000'000);
  std::filesystem::resize_file(folder.write("a/more.txt", ""), 100'000'001);
  folder.write("a/.gitattributes", "");
  folder.write("a/training/values.safetensors", weights({1}));
  const auto told = converted(folder.path("a"), folder.path("b"), {.dtype = DType::F16});
  EXPECT_EQ(told["left_out"], nlohmann::json({"more.txt"}));
  EXPECT_EQ(std::filesystem::file_size(folder.path("b/most.txt")), 100'000'000U);
  EXPECT_EQ(nlohmann::json::parse(read(folder.path("b/config.json"))),
            nlohmann::json::parse(R"({"model_type":"gemma","torch_dtype":"float16","x":[1.5]})"));
  EXPECT_EQ(read(folder.path("b/tokenizer.json")), "{}");
  for (const char* gone : {"b/pytorch_model.bin", "b/rust_model.ot", "b/64.tflite", "b/more.txt",
                           "b/.gitattributes", "b/training"})
    EXPECT_FALSE(std::filesystem::exists(folder.path(gone))) << gone;
  converted(folder.path("a"), folder.path("c"));
  EXPECT_EQ(read(folder.path("c/config.json")), read(folder.path("a/config.json")));
}

TEST(CkptConvert, RefusesWhatItCannotConvert) {
  const ScratchFolder folder;
  const auto refused = [&](const std::string& from, const ConvertOptions& options) {
    const std::string said = message_of([&] { converted(from, folder.path("out"), options); });
    EXPECT_FALSE(std::filesystem::exists(folder.path("out"))) << said;
    EXPECT_FALSE(std::filesystem::exists(folder.path("out.part"))) << said;
    return said;
  };
  folder.write("f8/model.safetensors",
               stored_file(R"({"q":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]}})", "ab"));
  EXPECT_CONTAINS(refused(folder.path("f8"), {.dtype = DType::BF16}), "'q' is F8_E4M3");
  folder.write("q/model.safetensors", weights({1}));
  folder.write("q/config.json", R"({"quantization_config": {"bits": 4}})");
  EXPECT_CONTAINS(refused(folder.path("q"), {.dtype = DType::BF16}), "quantization_config");
  EXPECT_CONTAINS(refused(folder.path("none"), {}), "there is no such file");
  for (const char* text : {"", "a text that is no model"})
    EXPECT_CONTAINS(refused(folder.write("x.txt", text), {}), "neither a safetensors file, nor");
  Manifest manifest;
  const std::string whole = weights({1, 2});
  manifest.add("model.safetensors", whole);
  folder.write("d/" + std::string(Manifest::kPath), manifest.text());
  folder.write("d/model.safetensors", weights({1, 2.5}));
  EXPECT_CONTAINS(refused(folder.path("d"), {}), "is damaged");
}

TEST(CkptConvert, ReplacesAFolderOnlyWhenAsked) {
  const ScratchFolder folder;
  folder.write("a/model.safetensors", weights({1, 2}));
  folder.write("b/note.txt", "kept");
  EXPECT_CONTAINS(message_of([&] { converted(folder.path("a"), folder.path("b")); }),
                  "b: is there and is not empty; give another folder, or say --overwrite");
  EXPECT_CONTAINS(message_of([&] { converted(folder.path("a"), folder.path("c/d")); }),
                  str_cat("`mkdir -p ", folder.path("c"), "`"));
  EXPECT_CONTAINS(
      message_of([&] { converted(folder.path("a"), folder.path("b"), {.overwrite = true}); }),
      "b: has no model");
  EXPECT_EQ(read(folder.path("b/note.txt")), "kept");
  folder.write("b/model.safetensors", "");
  converted(folder.path("a"), folder.path("b"), {.overwrite = true});
  EXPECT_TRUE(has_no_difference(folder.path("a"), folder.path("b")));
  converted(folder.path("a"), folder.path("a"), {.dtype = DType::F64, .overwrite = true});
  EXPECT_EQ(bits_of_tensor<std::uint64_t>(folder.path("a"), "w").size(), 2);
  folder.write("a/rust_model.ot", "kept");
  EXPECT_CONTAINS(
      message_of([&] { converted(folder.path("a"), folder.path("a"), {.overwrite = true}); }),
      "rust_model.ot");
  EXPECT_EQ(read(folder.path("a/rust_model.ot")), "kept");
}

}  // namespace
}  // namespace coshard::tools
