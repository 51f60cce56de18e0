#include <coshard/profiling/collective_counter.h>

#include <gtest/gtest.h>

#include <sstream>

namespace coshard {
namespace {

CommEvent event(CollectiveKind kind, std::int64_t bytes = 8) {
  CommEvent made;
  made.kind = kind;
  made.bytes = bytes;
  return made;
}

TEST(CollectiveCounter, TellsKindsApartAndForwardFromBackward) {
  CollectiveCounter counter;
  counter.issued(event(CollectiveKind::AllReduce), 0);
  counter.backward_enter();
  counter.issued(event(CollectiveKind::AllReduce), 1);
  counter.issued(event(CollectiveKind::AllGather), 2);
  counter.backward_exit();
  counter.issued(event(CollectiveKind::AllReduce), 3);
  EXPECT_EQ(counter.forward(CollectiveKind::AllReduce), 2);
  EXPECT_EQ(counter.backward(CollectiveKind::AllReduce), 1);
  EXPECT_EQ(counter.total(CollectiveKind::AllReduce), 3);
  EXPECT_EQ(counter.total(CollectiveKind::AllGather), 1);
  EXPECT_EQ(counter.total(CollectiveKind::Broadcast), 0);
  EXPECT_EQ(counter.total(), 4);
}

TEST(CollectiveCounter, AModuleCountsWhatItsSubModulesIssue) {
  CollectiveCounter counter;
  counter.module_enter("layers.1");
  counter.module_enter("layers.1.attn");
  counter.issued(event(CollectiveKind::AllReduce, 100), 0);
  counter.module_exit("layers.1.attn");
  counter.issued(event(CollectiveKind::AllReduce, 20), 0);
  counter.module_exit("layers.1");
  counter.module_enter("layers.10");
  counter.issued(event(CollectiveKind::AllReduce, 3), 0);
  counter.module_exit("layers.10");
  EXPECT_EQ(counter.in_module("layers.1", CollectiveKind::AllReduce).forward, 2);
  EXPECT_EQ(counter.in_module("layers.1", CollectiveKind::AllReduce).bytes, 120);
  EXPECT_EQ(counter.in_module("layers.1.attn", CollectiveKind::AllReduce).bytes, 100);
  EXPECT_EQ(counter.in_module("layers", CollectiveKind::AllReduce).forward, 3);
  EXPECT_EQ(counter.in_module("attn", CollectiveKind::AllReduce).forward, 0);
}

TEST(CollectiveCounter, BackwardBelongsToTheModuleThatItIsToldOf) {
  CollectiveCounter counter;
  counter.backward_enter();
  counter.module_enter("net");
  counter.issued(event(CollectiveKind::AllGather), 0);
  counter.module_exit("net");
  counter.issued(event(CollectiveKind::AllGather), 0);
  EXPECT_EQ(counter.in_module("net", CollectiveKind::AllGather).backward, 1);
  EXPECT_EQ(counter.count(CollectiveKind::AllGather).backward, 2);
}

TEST(CollectiveCounter, ModulesMayLeaveInAnotherOrderThanTheyEntered) {
  CollectiveCounter counter;
  counter.module_enter("a");
  counter.module_enter("b");
  counter.module_exit("a");
  counter.issued(event(CollectiveKind::Scatter), 0);
  EXPECT_EQ(counter.in_module("b", CollectiveKind::Scatter).forward, 1);
}

TEST(CollectiveCounter, ForgetsOnReset) {
  CollectiveCounter counter;
  counter.issued(event(CollectiveKind::Barrier), 0);
  counter.reset();
  EXPECT_EQ(counter.total(), 0);
}

TEST(CollectiveCounter, PrintsOneLinePerModuleAndKindThenAll) {
  CollectiveCounter counter;
  counter.module_enter("net");
  counter.issued(event(CollectiveKind::AllReduce, 512), 0);
  counter.backward_enter();
  counter.issued(event(CollectiveKind::Recv, 6), 0);
  counter.backward_exit();
  counter.module_exit("net");
  counter.issued(event(CollectiveKind::AllReduce, 20), 0);
  std::ostringstream out;
  out << counter;
  EXPECT_EQ(out.str(),
            "module                       collective       forward  backward          bytes\n"
            "net                          all_reduce             1         0            512\n"
            "net                          recv                   0         1              6\n"
            "all                          all_reduce             2         0            532\n"
            "all                          recv                   0         1              6\n");
}

}  // namespace
}  // namespace coshard
