#include "dtensor/checkpoint/strict_json.h"

#include <gtest/gtest.h>

#include <coshard/runtime/error.h>
#include "tests/dtensor/checkpoint/stored_files.h"

namespace coshard::testing {
namespace {

// What it was told, as one line.
class Told final : public JsonEvents {
 public:
  void begin_object() override { add("{"); }
  void end_object() override { add("}"); }
  void begin_array() override { add("["); }
  void end_array() override { add("]"); }
  void key(std::string_view name) override { add(str_cat(name, ':')); }
  void text(std::string_view value) override { add(str_cat('\'', value, '\'')); }
  void count(std::uint64_t value) override { add(std::to_string(value)); }
  void other(std::string_view value) override { add(str_cat('<', value, '>')); }
  std::string all;

 private:
  void add(std::string_view what) { all += str_cat(all.empty() ? "" : " ", what); }
};

std::string told(std::string_view text) {
  Told events;
  read_json(text, "f", events);
  return events.all;
}

TEST(StrictJson, TellsEveryValueInItsOrder) {
  EXPECT_EQ(
      told(
          R"({"b":[1,-1,2.50,1E+2,-0,true,false,null,"x\u00e4\n"],"a":{}, "b":18446744073709551615})"),
      "{ b: [ 1 <-1> <2.50> <1E+2> <-0> <true> <false> <null> 'xä\n' ] a: { } b: "
      "18446744073709551615 }");
  EXPECT_EQ(told("{\"a\":18446744073709551616}\n\t "), "{ a: <18446744073709551616> }");
}

TEST(StrictJson, NamesTheByteThatIsWrong) {
  const auto refusal = [](std::string_view text) { return message_of([&] { told(text); }); };
  EXPECT_EQ(refusal(""), "f: does not begin with '{'");
  for (const std::string_view text :
       {"{\"a\":01}", "{\"a\":+1}", "{\"a\":.5}", "{\"a\":1.}", "{'a':1}", "{\"a\":1,}",
        "{\"a\":1}x", "{\"a\" 1}", "{\"a\":Infinity}", "{\"a\":\"\t\"}", "{\"a\":\"\\x\"}",
        "{\"a\":\"\xc0\x80\"}", "{//\n}"}) {
    const std::string message = refusal(text);
    EXPECT_TRUE(message.starts_with("f: not JSON at byte ")) << text << " -> " << message;
    EXPECT_EQ(message.find_first_of("\n\t\xc0"), std::string::npos) << message;
  }
  EXPECT_EQ(refusal(std::string_view("{}\0{", 4)), "f: not JSON at byte 2: a zero byte");
}

}  // namespace
}  // namespace coshard::testing
