#include <coshard/runtime/type_name.h>

#include <gtest/gtest.h>

namespace coshard {
namespace {

struct Inner {};
template <class T>
struct Outer {};

TEST(TypeName, IsWithoutNamespaces) {
  EXPECT_EQ(type_name_of(typeid(Inner)), "Inner");
  EXPECT_EQ(type_name_of(typeid(int)), "int");
  EXPECT_EQ(type_name_of(typeid(Outer<int>)), "Outer<int>");
}

}  // namespace
}  // namespace coshard
