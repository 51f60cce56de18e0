#include <coshard/dtensor/redistribute/explain.h>

#include <gtest/gtest.h>

#include <coshard/runtime/error.h>

namespace coshard {
namespace {

TEST(PlanExplain, NamesStepsCollectivesAndBytes) {
  const PlanExplanation one = explain(parse_question("dp=2,tp=4", "8,16", "S(0),R", "R,R"));
  EXPECT_EQ(one.trace, "S(0)R -> RR");
  ASSERT_EQ(one.steps.size(), 1U);
  EXPECT_EQ(one.steps[0].collective, "all_gather");
  EXPECT_EQ(one.steps[0].over, "dp");
  EXPECT_EQ(one.steps[0].ranks, 2);
  EXPECT_EQ(one.bytes, 4 * 16 * 4);  // half of the tensor
  const PlanExplanation merged =
      explain(parse_question("dp=2,tp=4", "8,16", "P(sum),P(sum)", "S(0),S(-2)", "bf16"));
  EXPECT_EQ(merged.trace, "P(sum)P(sum) -> S(0)S(0)");
  EXPECT_EQ(merged.steps[0].over, "dp_tp");
  EXPECT_EQ(merged.bytes, 8 * 16 * 2 * 7 / 8);
  EXPECT_GT(merged.us, 0);
  EXPECT_EQ(explain(parse_question("tp=4", "", "P(max)", "R")).trace, "P(max) -> R");  // a scalar
}

TEST(PlanExplain, PrintsOneLinePerStepAndTheSum) {
  const auto text = str_cat(explain(parse_question("tp=2", "4", "R", "S(0)")));
  EXPECT_NE(text.find("R -> S(0)  slice"), text.npos) << text;
  EXPECT_NE(text.find("total"), text.npos) << text;
}

TEST(PlanExplain, AReductionThatTheDtypeDoesNotHaveIsRefusedAsWhenItRuns) {
  const auto planned = [](const char* from, const char* to, const char* dtype, const char* mesh) {
    try {
      return explain(parse_question(mesh, "4", from, to, dtype)).trace;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::BadInput);
      return std::string(error.what());
    }
  };
  for (const std::string reduce : {"sum", "avg", "product"}) {
    const std::string from = "P(" + reduce + ")";
    const std::string why = ": bool supports min (and) and max (or), not " + reduce;
    EXPECT_EQ(planned(from.c_str(), "R", "bool", "2"), "all_reduce" + why);
    EXPECT_EQ(planned(from.c_str(), "S(0)", "bool", "2"), "reduce_scatter" + why);
    EXPECT_EQ(planned(from.c_str(), "R", "i64", "2"), from + " -> R");
    EXPECT_EQ(planned(from.c_str(), "R", "bool", "1"), from + " -> R");  // one rank, no step
  }
  for (const char* from : {"P(min)", "P(max)", "S(0)"})
    EXPECT_EQ(planned(from, "R", "bool", "2"), std::string(from) + " -> R");
}

TEST(PlanExplain, BadInputIsAnErrorThatQuotesIt) {
  const auto refuse = [](const char* mesh, const char* shape, const char* from, const char* to) {
    try {
      explain(parse_question(mesh, shape, from, to));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::BadInput);
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refuse("2", "4", "R", "S(0)"), "accepted");
  EXPECT_EQ(refuse("tp", "4", "R", "R"), "plan: mesh size 'tp' is not a number of at least 1");
  EXPECT_EQ(refuse("tp=2,tp=2", "4", "R,R", "R,R"),
            "plan: mesh 'tp=2,tp=2' has two dimensions 'tp'");
  EXPECT_EQ(refuse("tp=2", "4611686018427387904", "S(0)", "R"),
            "plan: shape '4611686018427387904' has more than 1e15 elements");
  EXPECT_EQ(refuse("=2", "4", "R", "R"), "plan: mesh '=2' is not name=size,…");
  EXPECT_EQ(refuse("tp=0", "4", "R", "R"), "plan: mesh size '0' is not a number of at least 1");
  EXPECT_EQ(refuse("tp=99999999999", "4", "R", "R"),
            "plan: mesh size '99999999999' is out of range");
  EXPECT_EQ(refuse("tp=2", "4,x", "R", "R"), "plan: size 'x' is not a number of at least 0");
  EXPECT_NE(refuse("tp=2", "4", "Q", "R").find("'Q'"), std::string::npos);
  EXPECT_NE(refuse("tp=2", "4", "R,R", "R").find("has 2 entries"), std::string::npos);
  EXPECT_NE(refuse("tp=2", "4", "R", "S(1)").find("S(1)"), std::string::npos);
  EXPECT_EQ(refuse("tp=2", "4", "P(sum)", "P(max)"),
            "plan: P(sum) to P(max): P(sum) cannot become P(max)");
  EXPECT_EQ(refuse("tp=2", "4", "R", "P(sum)"), "plan: R to P(sum): R cannot become P(sum)");
  EXPECT_EQ(refuse("2,2,2,2,2,2,2", "4", "R,R,R,R,R,R,R", "R"),
            "plan: layout 'R,R,R,R,R,R,R' has 7 entries; a mesh has at most 6 dimensions");
  EXPECT_EQ(refuse("2", "1,1,1,1,1,1,1,1,1", "R", "R"),
            "plan: shape '1,1,1,1,1,1,1,1,1' has 9 dimensions; a tensor has at most 8");
  EXPECT_NE(refuse("tp=2000000000", "4", "R", "R").find("at most"), std::string::npos);
}

}  // namespace
}  // namespace coshard
