// Where calibrations are kept, and what becomes of files that cannot be used.
#include "dtensor/calibration/calibration_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include <coshard/runtime/error.h>
#include "tests/support/grouped_numbers.h"
#include "tests/support/json.h"
#include "tests/support/set_variable.h"

namespace coshard {
namespace {

namespace fs = std::filesystem;
using testing::temporary_path;
using Set = testing::SetVariable;

Calibration of(const std::string& about) {
  Calibration c;
  c.about = about;
  c.links = {{1, 2, 3, 4, 5, 6}};
  return c;
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    return error.what();
  }
  return "";
}

TEST(CalibrationFile, LiesInTheCacheFolder) {
  const std::string folder = temporary_path("cache");
  {
    const Set cache("XDG_CACHE_HOME", folder);
    const CalibrationFile file("", "this");
    EXPECT_EQ(file.path().rfind(folder + "/coshard/calibration-", 0), 0U) << file.path();
    EXPECT_NE(file.path(), CalibrationFile("", "that").path());
    EXPECT_FALSE(file.read("this"));
    file.write(of("this"));
    EXPECT_TRUE(file.read("this") == of("this"));
  }
  const Set none("XDG_CACHE_HOME", ""), home("HOME", folder);
  EXPECT_EQ(CalibrationFile("", "this").path().rfind(folder + "/.cache/coshard/", 0), 0U);
  const Set homeless("HOME", "");
  const CalibrationFile nowhere("", "this");
  EXPECT_EQ(nowhere.path(), "");
  EXPECT_FALSE(nowhere.read("this"));
  nowhere.write(of("this"));
}

// Processes with other locales share it.
TEST(CalibrationFile, IsTheSameInEveryLocale) {
  const Set cache("XDG_CACHE_HOME", temporary_path("locale"));
  const CalibrationFile file("", "this");
  Calibration large = of("this");
  large.links = {{12'345, 1'234'567, 3, 4'000'000, 5, 6}};
  const testing::GroupedNumbers grouped;
  const CalibrationFile other("", "this");
  EXPECT_EQ(other.path(), file.path());
  other.write(large);
  EXPECT_TRUE(file.read("this") == large);
  EXPECT_NE(large.text().find("12345 1234567 "), std::string::npos) << large.text();
}

TEST(CalibrationFile, OfSomethingElseIsMeasuredAnew) {
  const CalibrationFile file(temporary_path("named"), "this");
  file.write(of("that"));
  EXPECT_FALSE(file.read("this"));
  file.write(of("this"));
  EXPECT_TRUE(file.read("this"));
  EXPECT_EQ(fs::exists(file.path() + "." + std::to_string(::getpid())), false);
}

TEST(CalibrationFile, ThatIsDamagedIsAnErrorOnlyIfItIsNamed) {
  const std::string named = temporary_path("named");
  std::ofstream(named) << "coshard calibration 0\n";
  const std::string told = error_of([&] { (void)CalibrationFile(named, "this").read("this"); });
  EXPECT_EQ(told, "calibrate: " + named +
                      " is damaged, or is not a calibration of this version; remove it to measure "
                      "anew");
  const Set cache("XDG_CACHE_HOME", temporary_path("cache"));
  const CalibrationFile unnamed("", "this");
  unnamed.write(of("this"));
  std::ofstream(unnamed.path()) << "coshard calibration 0\n";
  EXPECT_FALSE(unnamed.read("this"));
  unnamed.write(of("this"));
  EXPECT_TRUE(unnamed.read("this"));
}

TEST(CalibrationFile, ThatCannotBeWrittenIsAnErrorOnlyIfItIsNamed) {
  const std::string folder = temporary_path("nothing") + "/within";
  const CalibrationFile named(folder + "/file", "this");
  EXPECT_FALSE(named.read("this"));
  EXPECT_EQ(error_of([&] { named.write(of("this")); }),
            "calibrate: cannot write " + named.path() + ": No such file or directory");
  const Set cache("XDG_CACHE_HOME", "/proc/none");
  const CalibrationFile unnamed("", "this");
  unnamed.write(of("this"));
  EXPECT_FALSE(unnamed.read("this"));
}

TEST(CalibrationFile, ThatCannotBeReadIsAnErrorOnlyIfItIsNamed) {
  const std::string folder = temporary_path("folder");
  fs::create_directory(folder);
  EXPECT_EQ(error_of([&] { (void)CalibrationFile(folder, "this").read("this"); }),
            "calibrate: cannot read " + folder + ": Is a directory");
}

}  // namespace
}  // namespace coshard
