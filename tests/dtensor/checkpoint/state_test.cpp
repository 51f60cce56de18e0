// Names of tensors.
#include "tests/dtensor/checkpoint/saved_states.h"

namespace coshard::testing {
namespace {

TEST(State, RefusesNamesThatAFileCannotHave) {
  alone([](World& world) -> Task<void> {
    State state;
    const Tensor x = counting(world, {1});
    state.add("a", x);
    for (const char* name : {"", "__metadata__", "a", "b\n"})
      EXPECT_NE(message_of([&] { state.add(name, x); }), "") << name;
    EXPECT_NE(message_of([&] { state.add("b", Tensor()); }), "");
    EXPECT_NE(message_of([&] { state.tie("b", "c"); }), "");
    EXPECT_NE(message_of([&] { state.tie("a", "a"); }), "");
    EXPECT_NE(message_of([&] { state["c"]; }).find("'c'"), std::string::npos);
    State outer;
    outer.add("m", state.tie("b", "a"));
    EXPECT_NE(outer.find("m.b"), nullptr);
    EXPECT_EQ(outer.size(), 1U);
    co_return;
  });
}

}  // namespace
}  // namespace coshard::testing
