#include "dtensor/checkpoint/weight_map.h"

#include <gtest/gtest.h>

#include "tests/dtensor/checkpoint/stored_files.h"

namespace coshard::testing {
namespace {

TEST(WeightMap, TellsTheTensorsOfEachFile) {
  const WeightMap map(
      R"({"weight_map":{"b":"2.safetensors","\u0061":"2.safetensors","c":"1.safetensors"},"x":[{}]})",
      "i");
  ASSERT_EQ(map.files().size(), 2U);
  EXPECT_EQ(map.files().at("2.safetensors"), (std::vector<std::string_view>{"b", "a"}));
  EXPECT_EQ(map.files().at("1.safetensors"), (std::vector<std::string_view>{"c"}));
}

TEST(WeightMap, RefusesTooManyFilesAndDuplicatesInTwoFiles) {
  std::string many = R"({"weight_map":{)";
  for (int i = 0; i < 65'537; ++i)
    many += str_cat(i == 0 ? "\"" : ",\"", i, "\":\"", i, ".safetensors\"");
  EXPECT_CONTAINS(message_of([&] { WeightMap(many + "}}", "i"); }),
                  "i: names more than 65536 files");
  EXPECT_CONTAINS(message_of([&] {
                    WeightMap(R"({"weight_map":{"a":"1.safetensors","\u0061":"2.safetensors"}})",
                              "i");
                  }),
                  "i: has tensor 'a' twice");
  EXPECT_CONTAINS(message_of([&] { WeightMap(R"({"weight_map":{"a":[]}})", "i"); }),
                  "an array for 'a'");
}

}  // namespace
}  // namespace coshard::testing
