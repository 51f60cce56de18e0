// The shims that were built, each with its own MPI, in a process that no launcher has started.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>

#include "runtime/comm/mpi/mpi_api.h"
#include "runtime/shared_library.h"

namespace coshard {
namespace {

// In the build folder, which this program lies in.
std::string shim_of(const char* mpi) {
  const std::string name = std::string("runtime/comm/mpi/libcoshard_") + mpi + ".so";
  std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  while (!std::filesystem::exists(folder / name) && folder != folder.root_path())
    folder = folder.parent_path();
  return folder / name;
}

// 0: a message to itself has arrived; else the number of what failed.
int message_to_itself(const char* mpi) {
  const SharedLibrary shim(shim_of(mpi), "");
  const MpiApi* (*get)() = nullptr;
  shim.require(get, "coshard_mpi_api");
  const MpiApi& api = *get();
  MpiPlace place{-1, -1, -1};
  if (api.version != kMpiApiVersion || std::strlen(api.library()) < 6) return 1;
  if (api.start(&place) != nullptr || api.start(&place) != nullptr) return 2;
  if (place.rank != 0 || place.size != 1 || place.most_tag < 32767) return 3;
  std::array<int, 1000> from{}, to{};
  from[999] = 42;
  const MpiDone* done = nullptr;
  int count = -1;
  if (api.poll(&done, &count) != nullptr || count != 0) return 4;
  if (api.receive(to.data(), sizeof to, 0, 7, 11) != nullptr) return 5;
  if (api.send(from.data(), sizeof from, 0, 7, 12) != nullptr) return 6;
  std::uint64_t cookies = 0;
  for (int over = 0; over < 2; over += count) {
    if (api.poll(&done, &count) != nullptr) return 7;
    for (int i = 0; i < count; ++i) {
      cookies += done[i].cookie;
      if (done[i].cookie == 11 && done[i].bytes != sizeof to) return 8;
    }
  }
  if (cookies != 23 || to != from) return 9;
  if (api.send(from.data(), 4, 5, 7, 13) == nullptr) return 10;  // there is no process 5
  return api.stop() == nullptr ? 0 : 11;
}

class MpiShim : public ::testing::TestWithParam<const char*> {};

TEST_P(MpiShim, StartsItsMpiAndMovesAMessage) {
  if (std::string_view(COSHARD_MPIS).find(GetParam()) == std::string_view::npos)
    GTEST_SKIP() << "not in this build: " << GetParam();
  ASSERT_TRUE(std::filesystem::exists(shim_of(GetParam()))) << shim_of(GetParam());
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  // A process of its own: two MPIs do not share one.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::_Exit(message_to_itself(GetParam())), ::testing::ExitedWithCode(0), "");
}

INSTANTIATE_TEST_SUITE_P(All, MpiShim, ::testing::Values("openmpi", "mpich"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace coshard
