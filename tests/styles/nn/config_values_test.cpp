#include "styles/nn/config_values.h"

#include <gtest/gtest.h>

#include "styles/nn/config_family.h"
#include "tests/dtensor/checkpoint/stored_files.h"

namespace coshard::nn {
namespace {

using testing::message_of;

constexpr Spelling<int> kNumbers[] = {{"one", 1}, {"eins", 1}, {"two", 2}};

TEST(ConfigValues, ReadAllSpellingsAndWriteTheFirst) {
  const ConfigJson json{{"n", "eins"}, {"m", "three"}};
  ConfigKeys keys(json, "config.json", "", {});
  EXPECT_EQ(value_of(keys, "n", "eins", kNumbers), 1);
  EXPECT_STREQ(text_of(1, kNumbers), "one");
  EXPECT_EQ(text_of(3, kNumbers), nullptr);
  EXPECT_NE(message_of([&] {
              value_of(keys, "m", "three", kNumbers);
            }).find("m \"three\" is not supported; supported are one, eins, two"),
            std::string::npos);
}

TEST(ConfigValues, RefuseWhatIsNotTaken) {
  const ConfigJson json{{"a", 1}, {"b", 2}, {"c", 3}};
  ConfigKeys keys(json, "config.json", "", {});
  keys.find("a");
  const auto refused = [&](KeyEffect effect) {
    return message_of([&] {
      refuse_rest(keys, "llama",
                  [&](const std::string& key) { return key == "b" ? effect : KeyEffect::None; });
    });
  };
  EXPECT_EQ(refused(KeyEffect::None), "");
  EXPECT_NE(refused(KeyEffect::Refused).find("b 2 changes"), std::string::npos);
  EXPECT_NE(refused(KeyEffect::Unknown).find("b 2 is not known"), std::string::npos);
}

TEST(ConfigValues, PositiveNumbersAndTypes) {
  const ConfigJson json{{"x", 2.5}, {"y", 0}, {"dtype", "float16"}, {"torch_dtype", "bfloat16"}};
  ConfigKeys keys(json, "config.json", "", {});
  EXPECT_EQ(positive(keys, "x", std::nullopt), 2.5);
  EXPECT_EQ(positive(keys, "z", 3), 3);
  EXPECT_NE(message_of([&] { positive(keys, "z", std::nullopt); }).find("is needed"),
            std::string::npos);
  EXPECT_NE(message_of([&] { positive(keys, "y", 1); }).find("is not positive"), std::string::npos);
  EXPECT_NE(message_of([&] { read_dtype(keys); }).find("differs from dtype"), std::string::npos);
}

}  // namespace
}  // namespace coshard::nn
