// Processes as groups of one thread, whose messages arrive when the test says so, by a clock that it
// sets.
#include "runtime/comm/local/announcements.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <coshard/runtime/coro/rank_context.h>
#include <coshard/runtime/error.h>
#include "runtime/comm/collective.h"
#include "runtime/comm/local/group.h"
#include "runtime/comm/local/thread_group.h"
#include "runtime/comm/mpi/notice.h"

namespace coshard::testing {
namespace {

constexpr std::int64_t kOneSecond = 1'000'000'000;
constexpr int kAnnounced = 0, kAcknowledged = 1, kAsked = 2;
constexpr std::array kProcesses = {2, 4, 8, 16};

// Of the test's thread, whose time passes only while it sleeps.
class HandClock final : public Parker {
 public:
  HandClock() : context_(this) { RankContext::exchange(&context_); }
  ~HandClock() override { RankContext::exchange(nullptr); }
  void park(std::int64_t deadline_ns, boost::asio::io_context*) override {
    now_ns = std::max(now_ns + 1, deadline_ns);
    if (meanwhile) meanwhile();
  }
  void unpark() noexcept override {}
  std::int64_t now() const override { return now_ns; }
  bool shares_its_thread() const override { return true; }

  std::int64_t now_ns = kOneSecond;
  std::function<void()> meanwhile;

 private:
  RankContext context_;
};

class Wires;

// One process's end of them.
class Wire final : public RemoteRanks {
 public:
  Wire(Wires& wires, int process) : wires_(wires), process_(process) {}
  bool here(int world_rank) const override;
  bool together(int one, int other) const override;
  void made(const std::shared_ptr<LocalGroup>& group) override { of = group; }
  void tell(const LocalGroup& group, int to, const Announcement& said) override;
  void poisoned(const LocalGroup& group, const std::string& cause) override;
  bool drive() override;
  bool drive_while_waiting() override { return drive(); }
  bool in_flight() const override { return false; }
  bool data_move(int, std::int64_t) const override { return false; }
  bool lately_may_wait(int) const override { return false; }
  void abandon(const LocalGroup&) override {}
  // Nothing but announcements goes over them.
  std::shared_ptr<RemoteState> new_state(const LocalGroup&, const RemoteState*) override {
    return nullptr;
  }
  void issued(LocalGroup&, CollectiveOp&, int) override { ADD_FAILURE(); }
  void arrived(LocalGroup&, CollectiveOp&, int) override { ADD_FAILURE(); }
  void receive(LocalGroup&, CollectiveOp&) override { ADD_FAILURE(); }
  bool armed(LocalGroup&, CollectiveOp&) override { return false; }
  void summed(LocalGroup&, CollectiveOp&) override {}
  int posted(LocalGroup&, const Collective&, int) override { return 0; }
  std::function<void()> carrier(LocalGroup&, const std::shared_ptr<Message>&) override {
    return nullptr;
  }

  std::weak_ptr<LocalGroup> of;

 private:
  Wires& wires_;
  int process_;
};

class Wires {
 public:
  explicit Wires(int processes, int per_process = 1) : per_process(per_process) {
    for (int p = 0; p < processes; ++p) {
      ends.push_back(std::make_shared<Wire>(*this, p));
      groups.push_back(std::make_unique<ThreadGroup>(
          processes * per_process, "tp", ThreadGroupOptions{.remote = ends.back(), .key = 1}));
      for (int r = 0; r < per_process; ++r)
        comms.push_back(groups.back()->communicator(p * per_process + r));
    }
    for (const auto& comm : comms) comm->set_timeout(10 * kOneSecond);
    arrives.resize(ends.size());
    sent.resize(ends.size());
  }
  int size() const { return static_cast<int>(comms.size()); }
  std::shared_ptr<LocalGroup> group_of(int rank) const {
    return ends[static_cast<std::size_t>(rank / per_process)]->of.lock();
  }
  bool deliver_to(std::size_t process) {
    const auto messages = std::exchange(arrives[process], {});
    for (const auto& bytes : messages) {
      const auto group = ends[process]->of.lock();
      if (silent.contains(static_cast<int>(process)) || group->poisoned()) continue;
      Notice notice = notice_of(bytes);
      std::visit(
          [&](auto& one) {
            if constexpr (requires { one.to; }) group->announcements().heard(std::move(one));
          },
          notice);
    }
    return !messages.empty();
  }
  void deliver() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t p = 0; p < ends.size(); ++p) moved |= deliver_to(p);
    }
  }
  Communicator& comm(int rank) { return *comms[static_cast<std::size_t>(rank)]; }
  int sent_of(int kind, int process) {
    return sent[static_cast<std::size_t>(process)][static_cast<std::size_t>(kind)];
  }

  int per_process;
  std::vector<std::shared_ptr<Wire>> ends;
  std::vector<std::unique_ptr<ThreadGroup>> groups;
  std::vector<std::shared_ptr<Communicator>> comms;
  std::vector<std::deque<std::vector<std::byte>>> arrives;  // by process
  std::vector<std::array<int, 4>> sent;                     // by process, and kind
  std::set<int> silent;                                     // processes that hear nothing
};

bool Wire::here(int world_rank) const { return world_rank / wires_.per_process == process_; }
bool Wire::together(int one, int other) const {
  return one / wires_.per_process == other / wires_.per_process;
}
void Wire::tell(const LocalGroup& group, int to, const Announcement& said) {
  ++wires_.sent[static_cast<std::size_t>(process_)][said.index()];
  const int world = group.members()[static_cast<std::size_t>(to)];
  wires_.arrives[static_cast<std::size_t>(world / wires_.per_process)].push_back(to_bytes(said));
}
void Wire::poisoned(const LocalGroup&, const std::string& cause) {
  for (const auto& end : wires_.ends)
    if (end.get() != this) end->of.lock()->poisoned_elsewhere(cause);
}
bool Wire::drive() { return wires_.deliver_to(static_cast<std::size_t>(process_)); }

Collective sum_at(int line, std::int64_t extent = 4) {
  Collective c;
  c.kind = CollectiveKind::AllReduce;
  c.control_only = true;
  c.extent = extent;
  static float data = 0;
  c.send = c.recv = &data;
  c.where = {"train.cpp", line};
  return c;
}

struct Checked {
  bool failed = false;
  ErrorKind kind{};
  std::string text;
  std::vector<int> missing;
};
Checked checked(const Work& work, std::int64_t waited_ns) {
  try {
    work.state()->check(waited_ns);
  } catch (const Error& error) {
    const auto missing = error.missing();
    return {true, error.kind(), error.what(), {missing.begin(), missing.end()}};
  }
  return {};
}
bool says(const Checked& end, const std::string& text) {
  return end.text.find(text) != std::string::npos;
}

// --- what is sent ---

TEST(Announcements, CostOneMessagePerProcessAndCollective) {
  for (const int processes : kProcesses)
    for (const int per_process : {1, 2}) {
      HandClock clock;
      Wires wires(processes, per_process);
      constexpr int kTimes = 384;
      for (int i = 0; i < kTimes; ++i) {
        std::vector<Work> works;
        for (int r = 0; r < wires.size(); ++r) works.push_back(wires.comm(r).issue(sum_at(i)));
        wires.deliver();
        for (const Work& work : works) EXPECT_EQ(work.state()->poll(Poller::Await), Poll::Done);
      }
      for (int p = 0; p < processes; ++p) {
        EXPECT_EQ(wires.sent_of(kAnnounced, p), kTimes);
        EXPECT_EQ(wires.sent_of(kAcknowledged, p), kTimes / 128);
        EXPECT_EQ(wires.sent_of(kAsked, p), 0);
      }
    }
}

TEST(Announcements, GoToTheNextProcessOfTheGroup) {
  HandClock clock;
  Wires wires(4, 2);
  const std::vector<int> members = {6, 0, 3, 7, 1};  // processes 3, 0, 1
  std::vector<std::shared_ptr<Communicator>> mine;
  for (const int r : members) mine.push_back(wires.comm(r).subgroup(members, "dp"));
  std::vector<Work> works;
  for (const auto& comm : mine) works.push_back(comm->issue(sum_at(1)));
  wires.deliver();
  for (const Work& work : works) EXPECT_EQ(work.state()->poll(Poller::Await), Poll::Done);
  for (const int p : {0, 1, 3}) EXPECT_EQ(wires.sent_of(kAnnounced, p), 1);
  EXPECT_EQ(wires.sent_of(kAnnounced, 2), 0);
}

// --- ranks that differ ---

TEST(Announcements, ADifferenceOnAnyRankIsNamedOnAll) {
  for (const int processes : kProcesses)
    for (int other = 0; other < processes; ++other) {
      HandClock clock;
      Wires wires(processes);
      for (int r = 0; r < processes; ++r) (void)wires.comm(r).issue(sum_at(5));
      std::vector<Work> works;
      for (int r = 0; r < processes; ++r)
        works.push_back(wires.comm(r).issue(r == other ? sum_at(7, 8) : sum_at(6)));
      wires.deliver();
      for (const Work& work : works) {
        const Checked end = checked(work, 0);
        EXPECT_EQ(end.kind, ErrorKind::CommFailed);
        EXPECT_TRUE(says(end, "train.cpp:6")) << end.text;
        EXPECT_TRUE(says(end, str_cat("rank ", other,
                                      " calls all_reduce sum f32 [8] in "
                                      "branch main at train.cpp:7")))
            << end.text;
        EXPECT_TRUE(says(end, "collective #1 of tp[")) << end.text;
      }
      EXPECT_EQ(wires.sent_of(kAsked, 0), 0);
    }
}

TEST(Announcements, ADifferenceWithinAProcessIsNamedOnAll) {
  HandClock clock;
  Wires wires(2, 2);
  std::vector<Work> works;
  for (int r = 0; r < 4; ++r) works.push_back(wires.comm(r).issue(sum_at(r == 1 ? 7 : 6, r == 1)));
  wires.deliver();
  for (const Work& work : works) EXPECT_TRUE(says(checked(work, 0), "train.cpp:7"));
}

TEST(Announcements, TwoCallsThatOneRankSwapsAreNamed) {
  HandClock clock;
  Wires wires(4);
  std::vector<Work> works;
  for (const int turn : {0, 1})
    for (int r = 0; r < 4; ++r)
      works.push_back(wires.comm(r).issue(sum_at((r == 2) == (turn == 0) ? 8 : 9)));
  wires.deliver();
  for (const Work& work : works) EXPECT_TRUE(says(checked(work, 0), "swapped the two"));
}

// Two ranks that are no neighbours.
TEST(Announcements, CountsOfAnyTwoRanksAreCompared) {
  HandClock clock;
  Wires wires(4);
  std::vector<Work> works;
  for (int r = 0; r < 4; ++r) {
    Collective c = sum_at(6);
    c.kind = CollectiveKind::AllToAll;
    std::vector<std::int64_t> counts(4, 1);
    c.send_counts = std::make_shared<const std::vector<std::int64_t>>(counts);
    if (r == 3) counts[1] = 2;
    c.recv_counts = std::make_shared<const std::vector<std::int64_t>>(counts);
    if (r == 3) c.where.line = 7;
    works.push_back(wires.comm(r).issue(c));
  }
  wires.deliver();
  for (const Work& work : works) {
    const Checked end = checked(work, 0);
    EXPECT_TRUE(says(end, "train.cpp:6") && says(end, "train.cpp:7")) << end.text;
  }
}

// --- ranks that do not come ---

TEST(Announcements, AMissingRankIsNamedOnAll) {
  for (const int processes : kProcesses)
    for (int missing = 0; missing < processes; ++missing) {
      HandClock clock;
      Wires wires(processes);
      for (int r = 0; r < processes; ++r) (void)wires.comm(r).issue(sum_at(5));
      std::vector<std::pair<int, Work>> waits;
      for (int r = 0; r < processes; ++r)
        if (r != missing) waits.emplace_back(r, wires.comm(r).issue(sum_at(6)));
      wires.deliver();
      for (const auto& [rank, work] : waits) {
        EXPECT_FALSE(checked(work, 8 * kOneSecond).failed);
        EXPECT_EQ(wires.sent_of(kAsked, rank), 0);
        EXPECT_FALSE(checked(work, 9 * kOneSecond).failed);  // asks
      }
      wires.deliver();
      clock.now_ns += kOneSecond;
      int timeouts = 0;
      for (const auto& [rank, work] : waits) {
        const Checked end = checked(work, 10 * kOneSecond);
        timeouts += end.kind == ErrorKind::Timeout;
        EXPECT_TRUE(says(end, str_cat("missing: ", missing, " (last issued #0 all_reduce on tp[")))
            << end.text;
        EXPECT_TRUE(says(end, "at train.cpp:5") && says(end, "at train.cpp:6")) << end.text;
        EXPECT_EQ(end.missing,
                  end.kind == ErrorKind::Timeout ? std::vector{missing} : std::vector<int>());
        EXPECT_LT(wires.sent_of(kAsked, rank), processes);
      }
      EXPECT_EQ(timeouts, 1);  // the others hear of it
    }
}

TEST(Announcements, AProcessThatDoesNotAnswerIsMissing) {
  for (int silent = 0; silent < 4; ++silent) {
    HandClock clock;
    Wires wires(4);
    wires.silent = {silent};
    std::vector<Work> works;
    for (int r = 0; r < 4; ++r)
      if (r != silent) works.push_back(wires.comm(r).issue(sum_at(6)));
    wires.deliver();
    for (const Work& work : works) EXPECT_FALSE(checked(work, 10 * kOneSecond).failed);  // asks
    wires.deliver();
    EXPECT_FALSE(checked(works[0], 10 * kOneSecond).failed);
    clock.now_ns += kOneSecond;
    for (const Work& work : works)
      EXPECT_TRUE(says(checked(work, 11 * kOneSecond), str_cat("missing: ", silent, " (")));
  }
}

TEST(Announcements, NobodyIsMissingWhereAllHaveIssuedIt) {
  HandClock clock;
  Wires wires(4);
  std::vector<Work> works;
  for (int r = 0; r < 4; ++r) works.push_back(wires.comm(r).issue(sum_at(6)));
  wires.deliver();
  EXPECT_EQ(works[0].state()->poll(Poller::Query), Poll::Pending);  // not known before it asks
  for (const Work& work : works) EXPECT_FALSE(checked(work, 10 * kOneSecond).failed);
  wires.deliver();
  for (const Work& work : works) {
    EXPECT_FALSE(checked(work, 20 * kOneSecond).failed);
    EXPECT_EQ(work.state()->poll(Poller::Query), Poll::Done);
  }
}

TEST(Announcements, ALateRankIsNotMissing) {
  HandClock clock;
  Wires wires(4);
  std::vector<Work> works;
  for (int r = 0; r < 3; ++r) works.push_back(wires.comm(r).issue(sum_at(6)));
  for (const Work& work : works) EXPECT_FALSE(checked(work, 9 * kOneSecond).failed);
  wires.deliver();
  works.push_back(wires.comm(3).issue(sum_at(6)));  // and answers again
  wires.deliver();
  clock.now_ns += kOneSecond;
  for (const Work& work : works) EXPECT_FALSE(checked(work, 10 * kOneSecond).failed);
}

TEST(Announcements, ARankThatLeftIsNamedByItsSuccessor) {
  for (int gone = 0; gone < 4; ++gone) {
    HandClock clock;
    Wires wires(4);
    std::vector<Work> works;
    for (int r = 0; r < 4; ++r)
      if (r != gone) works.push_back(wires.comm(r).issue(sum_at(6)));
    wires.deliver();
    for (const auto& group : wires.groups) group->leave(gone);
    for (const Work& work : works) (void)checked(work, 0);
    for (const Work& work : works)
      EXPECT_TRUE(says(checked(work, 0), str_cat("rank ", gone, " left the program")));
  }
}

// --- ranks that run ahead ---

TEST(Announcements, ARankWaitsForItsSuccessorsAcknowledgement) {
  HandClock clock;
  Wires wires(4);
  constexpr auto kMost = static_cast<int>(Announcements::kMostUnacknowledged);
  for (int i = 0; i < kMost; ++i) (void)wires.comm(0).issue(sum_at(6));
  EXPECT_EQ(wires.group_of(0)->announcements().awaited(0), 127U);
  int others = 0;
  clock.meanwhile = [&] {
    if (others++ < 128)
      for (int r = 1; r < 4; ++r) (void)wires.comm(r).issue(sum_at(6));
    wires.deliver();
  };
  (void)wires.comm(0).issue(sum_at(6));
  EXPECT_GE(others, 128);
  EXPECT_EQ(wires.comm(0).issued(), kMost + 1U);
}

TEST(Announcements, ThatWaitHasADeadlineAndEndsWithAFailure) {
  for (const bool fails : {false, true}) {
    HandClock clock;
    Wires wires(4);
    for (int i = 0; i < 256; ++i) (void)wires.comm(0).issue(sum_at(6));
    const std::int64_t begin = clock.now_ns;
    clock.meanwhile = [&] {
      wires.deliver();
      if (fails) wires.comm(2).poison("the disk is full");
      clock.now_ns += kOneSecond / 100;
    };
    Checked end;
    try {
      (void)wires.comm(0).issue(sum_at(6));
    } catch (const Error& error) {
      end = {true, error.kind(), error.what(), {}};
    }
    EXPECT_EQ(end.kind, fails ? ErrorKind::CommFailed : ErrorKind::Timeout);
    EXPECT_TRUE(says(end, fails ? "the disk is full" : "missing: 1 (")) << end.text;
    EXPECT_LT(clock.now_ns - begin, 12 * kOneSecond);
  }
}

// Wherever between two acknowledgements the successor has stopped.
TEST(Announcements, ThatWaitEndsIfItsSuccessorStops) {
  for (const int issued : {1, 50, 127, 200})
    for (const bool leaves : {false, true}) {
      HandClock clock;
      Wires wires(4);
      for (int i = 0; i < issued; ++i) (void)wires.comm(1).issue(sum_at(6));
      while (!wires.group_of(0)->announcements().awaited(0)) {
        (void)wires.comm(0).issue(sum_at(6));
        wires.deliver();
      }
      if (leaves)
        for (const auto& group : wires.groups) group->leave(1);
      const std::int64_t begin = clock.now_ns;
      clock.meanwhile = [&] {
        wires.deliver();
        clock.now_ns += kOneSecond / 100;
      };
      Checked end;
      try {
        (void)wires.comm(0).issue(sum_at(6));
      } catch (const Error& error) {
        end = {true, error.kind(), error.what(), {}};
      }
      EXPECT_EQ(end.kind, leaves ? ErrorKind::CommFailed : ErrorKind::Timeout) << issued;
      EXPECT_TRUE(says(end, leaves ? "rank 1 left the program" : "missing: 1 (")) << end.text;
      EXPECT_LT(clock.now_ns - begin, 12 * kOneSecond) << issued;
    }
}

TEST(Announcements, ARankIsNeverFurtherAheadThanItCompares) {
  HandClock clock;
  Wires wires(8);
  for (bool moved = true; moved;) {  // all but rank 7, the predecessor of rank 0
    moved = false;
    for (int r = 0; r < 7; ++r)
      while (!wires.group_of(r)->announcements().awaited(r)) {
        (void)wires.comm(r).issue(sum_at(6));
        moved = true;
      }
    wires.deliver();
  }
  EXPECT_EQ(wires.comm(6).issued(), 256U);
  EXPECT_EQ(wires.comm(0).issued(), 1024U);
  clock.meanwhile = [&] { wires.deliver(); };
  for (int i = 0; i < 200; ++i) (void)wires.comm(7).issue(sum_at(6));
  wires.deliver();
  EXPECT_EQ(wires.group_of(0)->cause(), "");
  EXPECT_EQ(wires.group_of(0)->announcements().awaited(0), std::nullopt);
}

// --- launches of graphs ---

Collective launch_at(int line, const std::vector<Collective>& list, int ranks) {
  Collective c = launch_of(std::make_shared<const std::vector<Collective>>(list), ranks);
  c.where = {"train.cpp", line};
  return c;
}

TEST(Announcements, ALaunchIsOneMessage) {
  HandClock clock;
  Wires wires(4);
  const std::vector<Collective> list = {sum_at(1), sum_at(2), sum_at(3)};
  std::vector<Work> works;
  for (int r = 0; r < 4; ++r) works.push_back(wires.comm(r).issue(launch_at(9, list, 4)));
  wires.deliver();
  for (const Work& work : works) EXPECT_EQ(work.state()->poll(Poller::Await), Poll::Done);
  for (int p = 0; p < 4; ++p) EXPECT_EQ(wires.sent_of(kAnnounced, p), 1);
}

TEST(Announcements, LaunchesThatDifferNameTheirFirstDifferentCollective) {
  for (const int processes : kProcesses)
    for (int other = 0; other < processes; ++other)
      for (const bool shorter : {false, true}) {
        HandClock clock;
        Wires wires(processes);
        const std::vector<Collective> list = {sum_at(1), sum_at(2), sum_at(3)};
        std::vector<Collective> its = {sum_at(1), sum_at(4, 5), sum_at(3)};
        if (shorter) its.resize(1);
        std::vector<Work> works;
        for (int r = 0; r < processes; ++r)
          works.push_back(wires.comm(r).issue(r == other ? launch_at(8, its, processes)
                                                         : launch_at(9, list, processes)));
        wires.deliver();
        for (const Work& work : works) {
          const Checked end = checked(work, 0);
          EXPECT_EQ(end.kind, ErrorKind::CommFailed);
          for (const char* text : {"train.cpp:8", "train.cpp:9",
                                   "differ in collective 2 of the "
                                   "graph: ",
                                   "train.cpp:2"})
            EXPECT_TRUE(says(end, text)) << end.text;
          EXPECT_TRUE(says(end, shorter ? str_cat("rank ", other, " has no more") : "train.cpp:4"))
              << end.text;
        }
      }
}

TEST(Announcements, ALaunchAndACollectiveDiffer) {
  HandClock clock;
  Wires wires(4);
  std::vector<Work> works;
  for (int r = 0; r < 4; ++r)
    works.push_back(wires.comm(r).issue(r == 2 ? launch_at(8, {sum_at(1)}, 4) : sum_at(1)));
  wires.deliver();
  for (const Work& work : works) {
    const Checked end = checked(work, 0);
    EXPECT_TRUE(says(end, "rank 2 calls a launch of 1 recorded collectives")) << end.text;
    EXPECT_TRUE(says(end, "train.cpp:8") && says(end, "train.cpp:1")) << end.text;
  }
}

TEST(Announcements, LaunchesAreNamedAloneIfTheListDoesNotCome) {
  HandClock clock;
  Wires wires(2);
  const Work first = wires.comm(0).issue(launch_at(8, {sum_at(1)}, 2));
  const Work second = wires.comm(1).issue(launch_at(9, {sum_at(2, 5)}, 2));
  (void)wires.deliver_to(1);
  wires.silent = {0};
  wires.deliver();
  EXPECT_FALSE(checked(second, 0).failed);
  clock.now_ns += 6 * kOneSecond / 10;
  (void)checked(second, 0);
  for (const Work* work : {&first, &second}) {
    const Checked end = checked(*work, 0);
    EXPECT_TRUE(says(end, "train.cpp:8") && says(end, "train.cpp:9")) << end.text;
  }
}

}  // namespace
}  // namespace coshard::testing
