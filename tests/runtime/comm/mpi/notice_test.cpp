#include "runtime/comm/mpi/notice.h"

#include <gtest/gtest.h>

#include <coshard/runtime/error.h>
#include "runtime/comm/collective.h"

namespace coshard {
namespace {

Collective some_collective() {
  Collective c;
  c.kind = CollectiveKind::AllToAll;
  c.dtype = DType::BF16;
  c.reduce = Reduce::Max;
  c.gather_first = false;
  c.root = 3;
  c.outer = 2, c.extent = 8, c.middle = 5, c.inner = 7, c.scatter_extent = 6;
  c.counts = std::make_shared<const std::vector<std::int64_t>>(std::vector<std::int64_t>{5, 3});
  c.scatter_counts =
      std::make_shared<const std::vector<std::int64_t>>(std::vector<std::int64_t>{6, 0});
  c.label = "S(0)->S(1)";
  c.where = {"train.cpp", 88};
  c.operation = "matmul";
  c.module = "layers.0.mlp";
  c.noted = 17;
  c.last_noted = {"drew", "numbers of stream", 4, 9};
  c.branch = 12345;
  c.branch_path = std::make_shared<const std::string>("0.1");
  return c;
}

TEST(Notice, OfAnIssueKeepsAllThatRanksCompareAndSay) {
  const IssuedNotice sent{0x123456789abcULL,           41, 2, 77, {5, 6}, some_collective(), true,
                          {std::byte{7}, std::byte{8}}};
  const auto got = std::get<IssuedNotice>(notice_of(to_bytes(sent)));
  EXPECT_EQ(got.group, sent.group);
  EXPECT_EQ(got.sequence, 41U);
  EXPECT_EQ(got.rank, 2);
  EXPECT_EQ(got.tag, 77);
  EXPECT_TRUE(got.told);
  EXPECT_EQ(got.data, (std::vector<std::byte>{std::byte{7}, std::byte{8}}));
  EXPECT_EQ(got.print.call, 5U);
  EXPECT_EQ(got.print.given_up, 6U);
  EXPECT_EQ(fingerprint(got.args, 2), fingerprint(sent.args, 2));
  EXPECT_EQ(describe(got.args, 2), describe(sent.args, 2));
  EXPECT_EQ(location_text(got.args), " at train.cpp:88, in matmul, module layers.0.mlp");
  EXPECT_EQ(got.args.label, "S(0)->S(1)");
  EXPECT_EQ(got.args.noted, 17U);
  EXPECT_EQ(got.args.last_noted.what, "drew");
  EXPECT_EQ(got.args.last_noted.of_what, "numbers of stream");
  EXPECT_EQ(got.args.last_noted.value, 4U);
  EXPECT_EQ(got.args.last_noted.of, 9U);
  EXPECT_EQ(got.args.branch, 12345U);
  EXPECT_EQ(*got.args.branch_path, "0.1");
  EXPECT_EQ(*got.args.counts, (std::vector<std::int64_t>{5, 3}));
  EXPECT_EQ(*got.args.scatter_counts, (std::vector<std::int64_t>{6, 0}));
  EXPECT_EQ(got.args.send_counts, nullptr);
}

TEST(Notice, OfAnAnnouncementArrivesAsItWas) {
  const auto sent_and_back = [](const Announcement& said) { return notice_of(to_bytes(said)); };
  const Announced sent{9, 41, 2, 3, {5, 6}, some_collective()};
  const auto announced = std::get<Announced>(sent_and_back(sent));
  EXPECT_EQ(announced.number, 41U);
  EXPECT_EQ(announced.to, 3);
  EXPECT_EQ(announced.print.given_up, 6U);
  EXPECT_EQ(describe(announced.args, 2), describe(sent.args, 2));
  EXPECT_EQ(std::get<Acknowledged>(sent_and_back(Acknowledged{9, 128, 3, 2})).count, 128U);
  const auto asked = std::get<Asked>(sent_and_back(Asked{9, 41, 0, 2, {7, 8}}));
  EXPECT_EQ(asked.to, 2);
  EXPECT_EQ(asked.prints, (std::vector<std::uint64_t>{7, 8}));
  const auto answered = std::get<Answered>(sent_and_back(Answered{9,
                                                                  41,
                                                                  2,
                                                                  0,
                                                                  42,
                                                                  CollectiveKind::AllToAll,
                                                                  77,
                                                                  " at train.cpp:88",
                                                                  true,
                                                                  3,
                                                                  {5, 6},
                                                                  some_collective()}));
  EXPECT_EQ(answered.count, 42U);
  EXPECT_EQ(answered.kind, CollectiveKind::AllToAll);
  EXPECT_EQ(answered.age_ns, 77);
  EXPECT_EQ(answered.place, " at train.cpp:88");
  EXPECT_TRUE(answered.known);
  EXPECT_EQ(answered.part, 3);
  EXPECT_EQ(location_text(answered.args), location_text(sent.args));
}

TEST(Notice, OfAPoisonAndOfALeavingRankArriveAsTheyWere) {
  const auto poison = std::get<PoisonNotice>(notice_of(to_bytes(PoisonNotice{3, 9, "disk full"})));
  EXPECT_EQ(poison.run, 3U);
  EXPECT_EQ(poison.group, 9U);
  EXPECT_EQ(poison.cause, "disk full");
  EXPECT_EQ(std::get<LeftNotice>(notice_of(to_bytes(LeftNotice{2, 5}))).rank, 5);
}

TEST(Notice, OfHowAJobBeginsArrivesAsItWas) {
  const auto hello =
      std::get<HelloNotice>(notice_of(to_bytes(HelloNotice{71, "node1", "a:b", "a:p"})));
  EXPECT_EQ(hello.pid, 71);
  EXPECT_EQ(hello.host_name, "node1");
  EXPECT_EQ(hello.host, "a:b");
  const WelcomeNotice sent{
      {hello, {72, "node2", "c", "c:p"}}, {"10.0.0.1", "10.1.0.1"}, 4711, "secret"};
  const auto welcome = std::get<WelcomeNotice>(notice_of(to_bytes(sent)));
  ASSERT_EQ(welcome.processes.size(), 2U);
  EXPECT_EQ(welcome.processes[1].host_name, "node2");
  EXPECT_EQ(welcome.addresses, sent.addresses);
  EXPECT_EQ(welcome.port, 4711);
  EXPECT_EQ(welcome.secret, "secret");
  const auto run = std::get<RunNotice>(notice_of(to_bytes(RunNotice{4, 8})));
  EXPECT_EQ(run.run, 4U);
  EXPECT_EQ(run.ranks, 8);
}

TEST(Notice, OfNoKnownKindIsAnError) {
  const std::vector<std::byte> bytes(40, std::byte{99});
  EXPECT_THROW(notice_of(bytes), Error);
  EXPECT_THROW(notice_of({}), Error);
}

TEST(Notice, ThatEndsTooEarlyIsAnErrorAtAnyLength) {
  const auto bytes =
      to_bytes(IssuedNotice{1, 2, 3, 4, {5, 6}, some_collective(), true, {std::byte{7}}});
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_THROW(notice_of(std::span(bytes).first(size)), Error) << size;
}

}  // namespace
}  // namespace coshard
