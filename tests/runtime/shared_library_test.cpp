// Libraries opened by name: what is found, and what is said of what is not.
#include "runtime/shared_library.h"

#include <gtest/gtest.h>

#include <coshard/runtime/error.h>

namespace coshard {
namespace {

template <class F>
std::string unsupported(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Unsupported);
    return error.message();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(SharedLibrary, GivesItsFunctions) {
  const SharedLibrary math("libm.so.6", "install it");
  double (*lower)(double) = nullptr;
  math.require(lower, "floor");
  EXPECT_EQ(lower(2.5), 2);
  EXPECT_NE(math.find("floor"), nullptr);
  EXPECT_EQ(math.find("coshard_is_not_in_libm"), nullptr);
}

TEST(SharedLibrary, OneThatIsMissingIsNamedWithTheLoadersWordsAndTheRemedy) {
  EXPECT_EQ(unsupported([] { SharedLibrary("libcoshard_no_such.so.7", "install it"); }),
            "cannot load libcoshard_no_such.so.7 (libcoshard_no_such.so.7: cannot open shared "
            "object file: No such file or directory): install it");
}

TEST(SharedLibrary, AFunctionThatIsMissingIsNamedWithItsLibrary) {
  const SharedLibrary math("libm.so.6", "install a newer one");
  void (*never)() = nullptr;
  const std::string said = unsupported([&] { math.require(never, "coshard_is_not_in_libm"); });
  EXPECT_EQ(said.find("libm.so.6 has no coshard_is_not_in_libm ("), 0U) << said;
  EXPECT_NE(said.find("undefined symbol: coshard_is_not_in_libm): install a newer one"),
            std::string::npos)
      << said;
  EXPECT_EQ(never, nullptr);
}

TEST(SharedLibrary, AnAddressHasItsFile) {
  const SharedLibrary math("libm.so.6", "install it");
  EXPECT_TRUE(file_of(math.find("erf")).ends_with("libm.so.6"));
  EXPECT_EQ(file_of(nullptr), "");
}

}  // namespace
}  // namespace coshard
