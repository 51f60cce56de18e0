// New files: the order of tensors, where their data begin, when a file is full.
#include "dtensor/checkpoint/file_layout.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/dtensor/checkpoint/stored_files.h"

namespace coshard::testing {
namespace {

const std::vector<NewTensor> kTensors{{"b", StoredType::F32, {2, 3}},
                                      {"a", StoredType::F32, {}},
                                      {"flags", StoredType::Bool, {5}},
                                      {"none", StoredType::BF16, {0, 4}},
                                      {"ids\"é", StoredType::I64, {2}}};

TEST(FileLayout, PutsWideTypesFirstAndAlignsTheData) {
  const FileLayout made = lay_out(kTensors, 1 << 20, "model");
  ASSERT_EQ(made.files.size(), 1U);
  const FileLayout::File& file = made.files[0];
  EXPECT_EQ(file.name, "model.safetensors");
  EXPECT_EQ(file.head.size() % 4096, 0U);
  EXPECT_TRUE(made.index.empty());
  const auto data = static_cast<std::uint64_t>(file.bytes) - file.head.size();
  const SafetensorsHeader read(std::string_view(file.head).substr(8), data, "made");
  std::string order;
  for (std::size_t i = 0; i < read.size(); ++i) {
    order += str_cat(read[i].name, ' ');
    const NewTensor& given = kTensors[made.places[i].tensor];
    EXPECT_EQ(read[i].name, given.name);
    EXPECT_EQ(read[i].type, given.type);
    EXPECT_EQ(static_cast<std::int64_t>(read[i].begin + file.head.size()), made.places[i].begin);
    EXPECT_EQ(static_cast<std::int64_t>(read[i].end + file.head.size()), made.places[i].end);
  }
  EXPECT_EQ(order, "ids\"é a b none flags ");
  EXPECT_EQ(read.metadata().at("format"), "pt");
}

TEST(FileLayout, FillsFilesInOrderAndNamesThemInAnIndex) {
  const FileLayout made = lay_out(kTensors, 20, "model");
  std::vector<std::string> names;
  for (const FileLayout::File& file : made.files) names.push_back(file.name);
  EXPECT_EQ(names, (std::vector<std::string>{"model-00001-of-00003.safetensors",
                                             "model-00002-of-00003.safetensors",
                                             "model-00003-of-00003.safetensors"}));
  const nlohmann::json index = nlohmann::json::parse(made.index);
  EXPECT_EQ(index["metadata"]["total_size"], 16 + 4 + 24 + 5);
  EXPECT_EQ(index["weight_map"]["a"], names[0]);
  EXPECT_EQ(index["weight_map"]["b"], names[1]);  // 24 bytes: alone, though they are too many
  EXPECT_EQ(index["weight_map"]["flags"], names[2]);
  EXPECT_EQ(lay_out({}, 1, "model").files.size(), 1U);
}

TEST(FileLayout, RefusesNamesThatAreNoText) {
  EXPECT_NE(message_of([] {
              lay_out({{"a\xff", StoredType::F32, {1}}}, 1, "model");
            }).find("UTF-8"),
            std::string::npos);
}

}  // namespace
}  // namespace coshard::testing
