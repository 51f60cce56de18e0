// calibrate(): equal on all ranks, kept in a file, and what becomes of files that differ.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include <coshard/dtensor/calibration/calibrate.h>
#include <coshard/runtime/launch/simulate.h>
#include "dtensor/calibration/calibration_file.h"
#include "dtensor/mesh/calibration.h"
#include "runtime/launch/rank_directory.h"
#include "tests/support/json.h"
#include "tests/support/ranks.h"
#include "tests/support/set_variable.h"

namespace coshard {
namespace {

using testing::CountingObserver;
using testing::temporary_path;

// What a run finds, by rank, and how many collectives it issued.
struct Found {
  std::vector<Calibration> all;
  std::vector<std::vector<Link>> links;
  std::vector<int> issued;
};

WorldOptions options_of(int ranks) {
  WorldOptions options = testing::test_options(ranks);
  options.link = Link{200, 1'000};
  return options;
}

// `file` of each rank.
Found calibrated(const WorldOptions& options, const std::function<std::string(int)>& file,
                 std::vector<DType> dtypes = {DType::F32}) {
  Found found;
  const auto ranks = static_cast<std::size_t>(options.ranks);
  found.all.resize(ranks), found.links.resize(ranks), found.issued.resize(ranks);
  run_ranks(options, [&](World& world) -> Task<void> {
    CountingObserver issued(world);
    const DeviceMesh plain = init_device_mesh(world, {world.size()}, {"tp"});
    CalibrateOptions how;
    how.cache = file(world.rank());
    how.dtypes = dtypes;
    how.budget = std::chrono::milliseconds(20);
    Task<DeviceMesh> calibrating = calibrate(plain, how);
    const DeviceMesh mesh = co_await std::move(calibrating);
    const auto rank = static_cast<std::size_t>(world.rank());
    found.issued[rank] = issued.total();
    found.all[rank] = *mesh.calibration();
    found.links[rank] = mesh.links();
    Task<DeviceMesh> again = calibrate(mesh, how);
    const DeviceMesh same = co_await std::move(again);
    EXPECT_EQ(same.id(), mesh.id());
    EXPECT_EQ(issued.total(), found.issued[rank]) << "not twice in a run";
  });
  return found;
}

constexpr int kCompared = 2;  // collectives of a run that finds its file

TEST(Calibrate, IsEqualOnAllRanksAndMeasuredOnce) {
  const std::string path = temporary_path("calibration");
  const auto file = [&](int) { return path; };
  const Found first = calibrated(options_of(4), file, {DType::F32, DType::BF16});
  for (int r = 0; r < 4; ++r) {
    const auto rank = static_cast<std::size_t>(r);
    EXPECT_TRUE(first.all[rank] == first.all[0]);
    EXPECT_EQ(first.links[rank], first.links[0]);
    EXPECT_GT(first.issued[rank], kCompared);
  }
  const Calibration& c = first.all[0];
  ASSERT_NE(c.table(DType::F32), nullptr);
  ASSERT_NE(c.table(DType::BF16), nullptr);
  for (const std::int64_t ns : c.table(DType::F32)->ns) EXPECT_GE(ns, 1);
  EXPECT_GE(first.links[0][0].latency, 190);
  EXPECT_GT(first.links[0][0].bytes_per_us, 0);
  EXPECT_GE(first.links[0][0].contention, 0);
  EXPECT_LE(first.links[0][0].contention, 1);
  const Found second = calibrated(options_of(4), file, {DType::F32, DType::BF16});
  for (std::size_t rank = 0; rank < 4; ++rank) {
    EXPECT_TRUE(second.all[rank] == c);
    EXPECT_EQ(second.issued[rank], kCompared);
  }
}

TEST(Calibrate, MeasuresAnewWhereOneRankHasAnotherFile) {
  const std::string one = temporary_path("one"), other = temporary_path("other");
  const auto file = [&](int rank) { return rank == 0 ? one : other; };
  const Found both = calibrated(options_of(2), file);
  EXPECT_TRUE(std::filesystem::exists(one));
  EXPECT_FALSE(std::filesystem::exists(other)) << "one rank of a machine writes";
  Calibration edited = both.all[0];
  edited.products[0].ns[0] += 1;
  CalibrationFile(other, edited.about).write(edited);
  const Found third = calibrated(options_of(2), file);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_GT(third.issued[rank], kCompared);
    EXPECT_TRUE(third.all[rank] == third.all[0]);
  }
}

TEST(Calibrate, ForAnotherLinkIsAnother) {
  const std::string path = temporary_path("calibration");
  const auto file = [&](int) { return path; };
  (void)calibrated(options_of(2), file);
  WorldOptions slower = options_of(2);
  slower.link = Link{2'000, 1'000};
  const Found other = calibrated(slower, file);
  EXPECT_GT(other.issued[0], kCompared);
  EXPECT_GE(other.links[0][0].latency, 1'900);
}

TEST(Calibrate, ForOtherThreadsOrAnotherTransportIsAnother) {
  const std::string path = temporary_path("calibration");
  const auto issued_with = [&](const WorldOptions& options) {
    return calibrated(options, [&](int) { return path; }).issued[0];
  };
  const WorldOptions plain = options_of(2);
  EXPECT_GT(issued_with(plain), kCompared);
  WorldOptions other = plain;
  other.rank_threads = 1;
  EXPECT_GT(issued_with(other), kCompared);
  EXPECT_EQ(issued_with(other), kCompared);
  other = plain;
  other.progress_threads = 2;
  EXPECT_GT(issued_with(other), kCompared);
  for (const char* name : {"OMPI_MCA_btl", "UCX_TLS", "FI_PROVIDER"}) {
    const testing::SetVariable set(name, "tcp");
    EXPECT_GT(issued_with(plain), kCompared) << name;
    EXPECT_EQ(issued_with(plain), kCompared) << name;
  }
}

// Ranks that are threads have another link than those of two processes, and these than others.
TEST(Calibrate, OfRanksInProcessesIsAnotherThanOfThreads) {
  const std::string path = temporary_path("calibration");
  const Found found = calibrated(options_of(2), [&](int) { return path; });
  const Processes job = processes(options_of(2));
  for (const Calibration& c : found.all)
    EXPECT_EQ(c.about.find(str_cat(" processes, ", job.mpi)) != std::string::npos, job.all > 1)
        << c.about;
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(error.kind(), ErrorKind::BadInput) << text;
    return text.substr(text.find("calibrate"));  // after "rank 0: "
  }
  return "";
}

TEST(Calibrate, TellsOfANamedFileThatCannotBeUsed) {
  const std::string path = temporary_path("calibration");
  std::ofstream(path) << "something else\n";
  EXPECT_EQ(error_of([&] { calibrated(options_of(2), [&](int) { return path; }); }),
            "calibrate: " + path +
                " is damaged, or is not a calibration of this version; remove it to measure anew");
  const std::string within = temporary_path("nothing") + "/file";
  EXPECT_EQ(error_of([&] { calibrated(options_of(2), [&](int) { return within; }); }),
            "calibrate: cannot write " + within + ": No such file or directory");
  EXPECT_EQ(error_of([&] { calibrated(options_of(2), [&](int) { return path; }, {DType::I64}); }),
            "calibrate: i64 is not a floating dtype");
  EXPECT_EQ(error_of([&] { calibrated(options_of(2), [&](int) { return path; }, {}); }),
            "calibrate: name at least one dtype");
}

// A mesh of two dimensions, one of them of one rank; what moves between threads is not hidden.
TEST(Calibrate, MeasuresEachDimension) {
  const std::string path = temporary_path("calibration");
  testing::on_ranks(2, [&](World& world) -> Task<void> {
    const DeviceMesh plain = init_device_mesh(world, {1, 2}, {"dp", "tp"});
    CalibrateOptions how;
    how.cache = path;
    how.budget = std::chrono::milliseconds(20);
    Task<DeviceMesh> calibrating = calibrate(plain, how);
    const DeviceMesh mesh = co_await std::move(calibrating);
    EXPECT_EQ(mesh.links()[0], Link());
    EXPECT_FALSE(mesh.links()[1] == Link());
    EXPECT_TRUE(mesh["tp"].calibration() == mesh.calibration());
    EXPECT_EQ(mesh["tp"].links()[0], mesh.links()[1]);
  });
}

// A simulation's clock measures no products: it neither reads nor leaves a file.
TEST(Calibrate, InASimulationKeepsNothing) {
  const std::string path = temporary_path("calibration");
  const Program program = [&](World& world) -> Task<void> {
    const DeviceMesh plain = init_device_mesh(world, {2}, {"tp"});
    CalibrateOptions how;
    how.cache = path;
    how.budget = std::chrono::milliseconds(20);
    Task<DeviceMesh> calibrating = calibrate(plain, how);
    const DeviceMesh mesh = co_await std::move(calibrating);
    EXPECT_TRUE(mesh.calibration() != nullptr);
  };
  simulate(options_of(2), program, 1);
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace coshard
