// A folder that is made beside its place.
#include "dtensor/checkpoint/new_folder.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/dtensor/checkpoint/stored_files.h"

namespace coshard::testing {
namespace {

namespace fs = std::filesystem;

TEST(NewFolder, IsThereOnceItIsCommitted) {
  const ScratchFolder scratch;
  {
    NewFolder made(NewFolder::resolved(scratch.path("a/")), false);
    made.write("x", "text");
    EXPECT_FALSE(fs::exists(scratch.path("a")));
    made.commit();
    EXPECT_TRUE(fs::exists(scratch.path("a/x")));
  }
  EXPECT_TRUE(fs::exists(scratch.path("a/x")));
  EXPECT_FALSE(fs::exists(scratch.path("a.part")));
}

TEST(NewFolder, LeavesNothingIfItIsNotCommitted) {
  const ScratchFolder scratch;
  scratch.write("a/old", "old");
  scratch.write("a/model.safetensors", "old");
  {
    NewFolder made(scratch.path("a"), true);
    made.write("new", "new");
  }
  EXPECT_TRUE(fs::exists(scratch.path("a/old")));
  EXPECT_FALSE(fs::exists(scratch.path("a.part")));
}

TEST(NewFolder, ReplacesWhatIsThereAtOnce) {
  const ScratchFolder scratch;
  scratch.write("a/old", "old");
  scratch.write("a/model.safetensors", "old");
  EXPECT_NE(message_of([&] { NewFolder(scratch.path("a"), false); }).find("overwrite"),
            std::string::npos);
  NewFolder made(scratch.path("a"), true);
  made.write("new", "new");
  made.commit();
  EXPECT_FALSE(fs::exists(scratch.path("a/old")));
  EXPECT_TRUE(fs::exists(scratch.path("a/new")));
  EXPECT_FALSE(fs::exists(scratch.path("a.part")));
}

TEST(NewFolder, TakesThePlaceOfAnEmptyOne) {
  const ScratchFolder scratch;
  fs::create_directory(scratch.path("a.part"));
  NewFolder made(scratch.path("a"), false);
  made.commit();
  EXPECT_TRUE(fs::is_empty(scratch.path("a")));
}

TEST(NewFolder, ReplacesNoFolderThatHasMoreThanAModelOrNone) {
  const ScratchFolder scratch;
  scratch.write("notes/thesis.tex", "mine");
  scratch.write("parent/model.safetensors", "");
  scratch.write("parent/child/model.safetensors", "");
  for (const char* name : {"notes", "parent"}) {
    EXPECT_NE(message_of([&] { NewFolder(scratch.path(name), true); }), "") << name;
    EXPECT_FALSE(fs::exists(scratch.path(name) + ".part"));
  }
  EXPECT_TRUE(fs::exists(scratch.path("notes/thesis.tex")));
  fs::remove_all(scratch.path("parent/child"));
  scratch.write("parent/training/values.safetensors", "");
  NewFolder made(scratch.path("parent"), true);
  made.write("model.safetensors", "new");
  made.commit();
  EXPECT_FALSE(fs::exists(scratch.path("parent/training")));
}

TEST(NewFolder, ResolvesNoPathThatCannotBeReached) {
  const ScratchFolder scratch;
  fs::create_symlink("loop", scratch.path("loop"));
  EXPECT_CONTAINS(message_of([&] { NewFolder::resolved(scratch.path("loop/x/precious")); }),
                  "cannot be reached");
}

TEST(NewFolder, RestoresWhatAReplacementThatDiedHasMoved) {
  const ScratchFolder scratch;
  scratch.write("a.old/model.safetensors", "mine");
  scratch.write("a.old/.saving", "replaced\n");
  scratch.write("b.old/model.safetensors", "of somebody else");
  scratch.write("b.old/.saving", "");
  { const NewFolder made(scratch.path("a"), true); }
  EXPECT_TRUE(fs::exists(scratch.path("a/model.safetensors")));
  EXPECT_FALSE(fs::exists(scratch.path("a/.saving")));
  EXPECT_FALSE(fs::exists(scratch.path("a.old")));
  { const NewFolder made(scratch.path("b"), true); }
  EXPECT_FALSE(fs::exists(scratch.path("b")));
  EXPECT_TRUE(fs::exists(scratch.path("b.old/model.safetensors")));
}

TEST(NewFolder, FollowsALinkToWhatIsNotThere) {
  const ScratchFolder scratch;
  fs::create_symlink("real", scratch.path("link"));
  EXPECT_EQ(NewFolder::resolved(scratch.path("link")),
            (fs::weakly_canonical(scratch.path("x")).parent_path() / "real").string());
}

TEST(NewFolder, ChecksWhatItReplacesAgainAtTheEnd) {
  const ScratchFolder scratch;
  scratch.write("a/model.safetensors", "old");
  NewFolder made(scratch.path("a"), true);
  scratch.write("a/precious/thesis.txt", "mine");
  EXPECT_CONTAINS(message_of([&] { made.commit(); }), "precious");
  EXPECT_TRUE(fs::exists(scratch.path("a/precious/thesis.txt")));
  EXPECT_FALSE(fs::exists(scratch.path("a/.saving")));
}

TEST(NewFolder, DoesNotReplaceWhatAppearsMeanwhile) {
  const ScratchFolder scratch;
  NewFolder made(scratch.path("a"), false);
  made.write("new", "new");
  scratch.write("a/other", "other");
  EXPECT_NE(message_of([&] { made.commit(); }).find("overwrite"), std::string::npos);
  EXPECT_TRUE(fs::exists(scratch.path("a/other")));
}

TEST(NewFolder, ResolvesLinksAndRefusesWhatCannotBeMoved) {
  const ScratchFolder scratch;
  scratch.write("real/x", "x");
  fs::create_directory_symlink(scratch.path("real"), scratch.path("link"));
  EXPECT_EQ(NewFolder::resolved(scratch.path("link/")), fs::canonical(scratch.path("real")));
  const fs::path root = fs::canonical(scratch.path("."));
  EXPECT_EQ(NewFolder::resolved(scratch.path("./a//")), root / "a");
  scratch.write("far/below/x", "x");
  fs::create_directory_symlink(scratch.path("far/below"), scratch.path("deep"));
  EXPECT_EQ(NewFolder::resolved(scratch.path("deep/../a")), root / "far/a");
  for (const char* path : {"", ".", "..", "/", "a/.."})
    EXPECT_NE(message_of([&] { NewFolder::resolved(path); }), "") << path;
}

TEST(NewFolder, TakesThePlaceOfOneThatIsLeftAndNotOfOneThatIsBeingMade) {
  const ScratchFolder scratch;
  scratch.write("a.part/left", "left");
  EXPECT_NE(message_of([&] { NewFolder(scratch.path("a"), false); }).find("move it away"),
            std::string::npos);
  scratch.write("a.part/.saving", "");
  NewFolder made(scratch.path("a"), false);
  EXPECT_FALSE(fs::exists(scratch.path("a.part/left")));
  EXPECT_NE(message_of([&] { NewFolder(scratch.path("a"), false); }).find("another save"),
            std::string::npos);
  made.write("x", "text");
  made.commit();
  EXPECT_TRUE(fs::exists(scratch.path("a/x")));
}

}  // namespace
}  // namespace coshard::testing
