#include "runtime/comm/mpi/mpi_library.h"

#include <gtest/gtest.h>

#include <string>

#include <coshard/runtime/error.h>

namespace coshard {
namespace {

TEST(MpiLibrary, NoneIsLoadedInAProgramThatLinksNone) {
  EXPECT_EQ(loaded_mpi(), "");
  EXPECT_FALSE(is_initialised());
}

TEST(MpiLibrary, AShimThatIsNotThereIsAnErrorWithTheReasonAndTheRemedy) {
  EXPECT_FALSE(has_shim("lam"));
  try {
    (void)mpi_api("lam", "LAMWORLD=2");
    FAIL() << "opened";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(error.kind(), ErrorKind::Unsupported);
    EXPECT_EQ(text.find("cannot load libcoshard_lam.so ("), 0U) << text;
    EXPECT_NE(text.find("): LAMWORLD=2; build coshard with -Dmpi=enabled"), std::string::npos)
        << text;
    EXPECT_NE(text.find("without mpirun or srun"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace coshard
