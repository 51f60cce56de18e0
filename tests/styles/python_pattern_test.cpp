// Against what Python's re.fullmatch says of drawn patterns (make_python_patterns.py).
#include "styles/python_pattern.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

namespace coshard {
namespace {

TEST(PythonPattern, MatchesWhatPythonMatches) {
  std::ifstream file(COSHARD_STYLES "/python_patterns.txt");
  ASSERT_TRUE(file);
  int read = 0, matched = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string pattern, kind;
    std::getline(fields, pattern, '\t');
    std::getline(fields, kind, '\t');
    const auto matches = python_fullmatch(pattern);
    if (kind == "wrong") {
      EXPECT_FALSE(matches) << pattern;
      continue;
    }
    if (!matches) continue;
    ++read;
    for (std::string text; std::getline(fields, text, '\t');) {
      EXPECT_EQ(matches(text.substr(1)), text[0] == '+') << pattern << " and " << text;
      matched += text[0] == '+' ? 1 : 0;
    }
  }
  EXPECT_GT(read, 100);
  EXPECT_GT(matched, 200);
}

TEST(PythonPattern, ReadsWhatConfigurationsHave) {
  const auto matches = python_fullmatch(R"(model\.layers\.\d+\.self_attn\.(q_proj|v_proj))");
  ASSERT_TRUE(matches);
  EXPECT_TRUE(matches("model.layers.11.self_attn.v_proj"));
  EXPECT_FALSE(matches("model.layers.11.self_attn.o_proj"));
  EXPECT_FALSE(matches("xmodel.layers.1.self_attn.v_proj"));
}

TEST(PythonPattern, RefusesWhatItDoesNotSupport) {
  for (const char* text : {"(?=a)a", "(?i)a", R"((a)\1)", "(?P<n>a)", "a*+", "(ab){2}", "\xc3\xa4"})
    EXPECT_FALSE(python_fullmatch(text)) << text;
  EXPECT_FALSE(python_fullmatch(std::string(1001, 'a')));
}

}  // namespace
}  // namespace coshard
