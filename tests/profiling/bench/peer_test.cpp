#include "profiling/bench/peer.h"

#include <gtest/gtest.h>

#include <fstream>

#include <coshard/runtime/error.h>
#include "tests/support/json.h"

namespace coshard::bench {
namespace {

TEST(NumbersOf, JoinsNestedKeysAndLeavesOutWhatIsNoNumber) {
  const auto found =
      numbers_of(R"({"a": {"b": 2.5, "text": "x, y"}, "yes": true, "c": -3e2, "n": null, "d": 7})");
  const std::map<std::string, double> wanted = {{"a.b", 2.5}, {"c", -300}, {"d", 7}};
  EXPECT_EQ(found, wanted);
}

TEST(RunPeer, ReadsTheObjectThatAScriptPrints) {
  const std::string script = coshard::testing::temporary_path("peer.py");
  std::ofstream(script) << "import sys\nprint('noise'); print('{\"' + sys.argv[1] + '\": 4}')\n";
  EXPECT_EQ(run_peer(script, {"what"}).at("what"), 4);
  std::remove(script.c_str());
}

TEST(RunPeer, NamesTheScriptThatFails) {
  try {
    run_peer("/nowhere/peer.py", {"train"});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Unsupported);
    EXPECT_NE(std::string(error.what()).find("/nowhere/peer.py"), std::string::npos);
  }
}

}  // namespace
}  // namespace coshard::bench
