#include "styles/nn/config_text.h"

#include <gtest/gtest.h>

#include <ctime>

#include "tests/dtensor/checkpoint/stored_files.h"

namespace coshard::nn {
namespace {

using testing::message_of;

TEST(ConfigText, KeepsTheOrderAndRefusesAKeyTwice) {
  const ConfigJson json = parse_config(R"({"b": [1, -2, {"x": null}], "a": 1e-05, "c": "t"})", "f");
  EXPECT_EQ(json.dump(), R"({"b":[1,-2,{"x":null}],"a":1e-05,"c":"t"})");
  EXPECT_EQ(message_of([] { parse_config(R"({"a": 1, "\u0061": 2})", "f"); }),
            "f: key \"a\" is there twice");
  EXPECT_NE(message_of([] { parse_config("{\"a\": 1,}", "f"); }).find("f: not JSON"),
            std::string::npos);
}

TEST(ConfigText, ReadsManyKeysInATimeThatGrowsWithTheirNumber) {
  constexpr int kKeys = 200'000;
  std::string text = "{";
  for (int i = 0; i < kKeys; ++i) text += str_cat("\"k", i, "\":{},");
  text += "\"k7\":1}";
  const std::clock_t begin = std::clock();
  EXPECT_EQ(message_of([&] { parse_config(text, "f"); }), "f: key \"k7\" is there twice");
  EXPECT_LT(std::clock() - begin, 10 * CLOCKS_PER_SEC);  // of this processor, not a minute
}

TEST(ConfigText, TakesMembersByTypeAndRange) {
  const ConfigJson json = parse_config(
      R"({"i": 3, "f": 2.5, "b": true, "t": "x", "head_dim": null, "deep": [], "gone": 1})",
      "f.json");
  const std::vector<std::string> ignore{"gone"};
  ConfigKeys keys(json, "f.json", "top.", ignore);
  EXPECT_EQ(keys.integer("i", 1, 3), 3);
  EXPECT_EQ(keys.number("i"), 3.0);
  EXPECT_EQ(keys.number("f"), 2.5);
  EXPECT_EQ(keys.flag("b"), true);
  EXPECT_EQ(keys.text("t"), "x");
  EXPECT_EQ(keys.integer("head_dim", 1, 3), std::nullopt);
  EXPECT_TRUE(keys.is_null("head_dim") && !keys.is_null("i") && !keys.is_null("absent"));
  EXPECT_EQ(keys.integer("gone", 1, 3), std::nullopt);
  const ConfigJson null = parse_config(R"({"rms_norm_eps": null})", "f");
  EXPECT_EQ(message_of([&] { ConfigKeys(null, "f", "", ignore).number("rms_norm_eps"); }),
            "f: rms_norm_eps null is no value");
  EXPECT_EQ(keys.rest(), std::vector<std::string>{"deep"});
  for (const char* wrong : {"f", "b", "t", "deep"})
    EXPECT_EQ(
        message_of([&] { keys.integer(wrong, 1, 3); }).find(std::string("f.json: top.") + wrong),
        0U);
  EXPECT_EQ(message_of([&] { keys.integer("i", 1, 2); }),
            "f.json: top.i 3 is not an integer from 1 to 2");
  const ConfigJson large = parse_config(R"({"i": 18446744073709551615})", "f");  // -1 is its bits
  EXPECT_EQ(message_of([&] { ConfigKeys(large, "f", "", ignore).integer("i", -1, 2); }),
            "f: i 18446744073709551615 is not an integer from -1 to 2");
  EXPECT_EQ(message_of([&] { keys.number("t"); }), "f.json: top.t \"x\" is not a number");
  EXPECT_EQ(message_of([&] { keys.flag("i"); }), "f.json: top.i 3 is not true or false");
  EXPECT_EQ(message_of([&] { keys.text("i"); }), "f.json: top.i 3 is not a text");
}

}  // namespace
}  // namespace coshard::nn
