// Branches: ids, values that children begin with, cancellation of a part.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include <coshard/runtime/coro/branch.h>
#include <coshard/runtime/error.h>

namespace coshard {
namespace {

const BranchLocal<std::string> word;

TEST(BranchOf, AChildIsToldByItsPositionsAndBeginsWithItsParentsValues) {
  Branch& root = Branch::current();
  word.own() = "mine";
  Branch child(root, 1, ""), named(root, 2, "loader"), grandchild(child, 0, "");
  EXPECT_EQ(grandchild.path(), "1.0");
  EXPECT_EQ(named.path(), "loader");
  EXPECT_NE(child.id(), named.id());
  EXPECT_EQ(Branch(root, 1, "").id(), child.id());
  EXPECT_EQ(word.own(child), "mine");
  word.own(child) = "its";
  EXPECT_EQ(word.get(), "mine");
  word.own().clear();
}

TEST(BranchOf, ItsPathIsShortHoweverDeepItIs) {
  Branch& root = Branch::current();
  word.own() = "of the root";
  std::vector<std::unique_ptr<Branch>> nested;
  for (int i = 0; i < 1000; ++i)
    nested.push_back(std::make_unique<Branch>(i == 0 ? root : *nested.back(), i % 2, ""));
  EXPECT_EQ(nested[15]->path(), "0.1.0.1.0.1.0.1.0.1.0.1.0.1.0.1");
  EXPECT_EQ(nested[999]->path(), "(984 more).0.1.0.1.0.1.0.1.0.1.0.1.0.1.0.1");
  EXPECT_TRUE(root.is_main());
  EXPECT_FALSE(nested[0]->is_main());
  EXPECT_EQ(word.own(*nested[500]), "of the root");
  word.own(*nested[500]) = "its";
  Branch child(*nested[500], 0, "");
  EXPECT_EQ(word.own(child), "its");
  EXPECT_EQ(word.own(*nested[999]), "of the root");
  while (!nested.empty()) nested.pop_back();
  word.own().clear();
}

std::string cause_of(const Branch& branch) {
  try {
    branch.throw_if_cancelled();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}
std::exception_ptr cancelled(const char* why) {
  return std::make_exception_ptr(Error(ErrorKind::Cancelled, why));
}
TEST(BranchOf, TheInnermostScopeThatWasCancelledCounts) {
  Branch& branch = Branch::current();
  CancelScope outer;
  {
    CancelScope middle;
    {
      CancelScope inner;
      middle.cancel(cancelled("middle"));
      EXPECT_FALSE(outer.stop_token().stop_requested());
      EXPECT_TRUE(inner.stop_token().stop_requested());
      EXPECT_EQ(cause_of(branch), "middle");
      outer.cancel(cancelled("outer"));
      EXPECT_TRUE(outer.stop_token().stop_requested());
      EXPECT_EQ(cause_of(branch), "middle");
      inner.cancel(cancelled("inner"));
      EXPECT_EQ(cause_of(branch), "inner");
    }
    EXPECT_EQ(cause_of(branch), "middle");
    CancelScope later;
    EXPECT_TRUE(later.stop_token().stop_requested());
  }
  EXPECT_EQ(cause_of(branch), "outer");
}

TEST(BranchOf, OnceCancelledItThrowsItsFirstCause) {
  Branch child(Branch::current(), 0, "");
  const std::stop_token token = child.stop_token();
  EXPECT_FALSE(child.cancelled());
  child.cancel(std::make_exception_ptr(Error(ErrorKind::Cancelled, "first")));
  child.cancel(std::make_exception_ptr(Error(ErrorKind::Timeout, "second")));
  EXPECT_TRUE(child.cancelled());
  EXPECT_TRUE(token.stop_requested());
  EXPECT_TRUE(child.stop_token().stop_requested());
  try {
    child.throw_if_cancelled();
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "first");
  }
}

TEST(BranchOf, AScopeIsCancelledWithThoseWithinItAndNotBeyond) {
  Branch& here = Branch::current();
  CancelScope outer;
  {
    CancelScope inner;
    const std::stop_token within = inner.stop_token();
    EXPECT_FALSE(here.cancelled());
    outer.cancel(std::make_exception_ptr(Error(ErrorKind::Timeout, "late")));
    EXPECT_TRUE(within.stop_requested());
    EXPECT_TRUE(here.cancelled());
  }
  EXPECT_TRUE(here.cancelled());
  EXPECT_THROW(here.throw_if_cancelled(), Error);
}

TEST(BranchOf, AfterTheScopeTheBranchGoesOn) {
  {
    CancelScope scope;
    scope.cancel(std::make_exception_ptr(Error(ErrorKind::Timeout, "late")));
  }
  EXPECT_FALSE(Branch::current().cancelled());
  EXPECT_NO_THROW(Branch::current().throw_if_cancelled());
}

}  // namespace
}  // namespace coshard
