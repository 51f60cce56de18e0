// Processes that tell each other who is alive; here each is an object of one process.
#include "runtime/control/liveness.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>

#include <coshard/runtime/error.h>
#include "runtime/control/control_acceptor.h"

namespace coshard::testing {
namespace {

using namespace std::chrono_literals;
using Lines = std::vector<std::string>;

// What one process has been told.
class Told {
 public:
  Liveness::Hooks hooks() {
    return {
        [this](int process, const std::string& why) { add(str_cat("lost ", process, ": ", why)); },
        [this](int process, std::chrono::milliseconds) { add(str_cat("silent ", process)); },
        [this](int from, const std::string& text) { add(str_cat(from, " said ", text)); }};
  }
  // Waits until there are so many lines, at most 10 s.
  Lines lines(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, 10s, [&] { return lines_.size() >= count; });
    return lines_;
  }

 private:
  void add(std::string line) {
    const std::scoped_lock lock(mutex_);
    lines_.push_back(std::move(line));
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  Lines lines_;
};

struct Job {
  explicit Job(int processes, bool beyond = false) : told(static_cast<std::size_t>(processes)) {
    all.push_back(std::make_unique<Liveness>(processes, beyond));
    for (int p = 1; p < processes; ++p)
      all.push_back(std::make_unique<Liveness>(p, processes, all[0]->address(), 5000ms));
    for (std::size_t p = 0; p < told.size(); ++p) all[p]->listen(told[p].hooks());
  }
  std::vector<Told> told;  // outlives those that tell
  std::vector<std::unique_ptr<Liveness>> all;
};

TEST(Liveness, WhatOneSaysReachesAllInOneOrder) {
  Job job(3);
  for (int i = 0; i < 20; ++i) {
    job.all[1]->say(str_cat("b", i));
    job.all[2]->say(str_cat("c", i));
    job.all[0]->say(str_cat("a", i));
  }
  const Lines first = job.told[0].lines(60);
  EXPECT_EQ(first.size(), 60U);
  EXPECT_EQ(job.told[1].lines(60), first);
  EXPECT_EQ(job.told[2].lines(60), first);
}

TEST(Liveness, WhatWasSaidBeforeAProcessListensIsNotLost) {
  std::vector<Told> told(2);
  Liveness zero(2, false);
  zero.say("early");
  Liveness one(1, 2, zero.address(), 5000ms);
  one.say("later");
  zero.listen(told[0].hooks());
  EXPECT_EQ(told[0].lines(2), (Lines{"0 said early", "1 said later"}));
  one.listen(told[1].hooks());
  EXPECT_EQ(told[1].lines(2), (Lines{"0 said early", "1 said later"}));
}

TEST(Liveness, OneThatSaysGoodbyeIsNotLost) {
  Job job(3);
  job.all[2].reset();
  job.all[1]->say("on");
  EXPECT_EQ(job.told[0].lines(1), Lines{"1 said on"});
  EXPECT_EQ(job.told[1].lines(1), Lines{"1 said on"});
  EXPECT_TRUE(job.all[0]->lost().empty());
  job.all[0].reset();  // which passed everything on
  job.all[1]->say("alone");
  EXPECT_EQ(job.told[1].lines(2).back(), "1 said alone");
  EXPECT_TRUE(job.all[1]->lost().empty());
}

// Another process in place of process `number`, which says nothing once it is connected.
struct Mute {
  Mute(const ControlAddress& address, int number)
      : link(connect_control(io, number, address, 5000ms, {})) {}
  ~Mute() { link->close(); }
  boost::asio::io_context io;
  std::shared_ptr<ControlLink> link;
};

TEST(Liveness, OneWhoseConnectionClosesIsLostForAll) {
  std::vector<Told> told(2);
  Liveness zero(3, false);
  Liveness one(1, 3, zero.address(), 5000ms);
  zero.listen(told[0].hooks());
  one.listen(told[1].hooks());
  { const Mute dies(zero.address(), 2); }
  EXPECT_EQ(told[0].lines(1), Lines{"lost 2: its connection closed"});
  EXPECT_EQ(told[1].lines(1), Lines{"lost 2: its connection closed"});
  EXPECT_EQ(one.lost(), std::vector{2});
  Told again;
  one.listen(again.hooks());  // as the next run does
  EXPECT_EQ(again.lines(1), Lines{"lost 2: its connection closed"});
  one.listen({});
}

// A process that has ended.
int pid_of_a_dead_one() {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(0);
  ::waitpid(pid, nullptr, 0);
  return pid;
}

// As a process does that has forked another one, which still has its sockets.
TEST(Liveness, OneThatHasDiedIsLostForAllThoughItsConnectionStaysOpen) {
  std::vector<Told> told(2);
  Liveness zero(4, false);
  Liveness one(1, 4, zero.address(), 5000ms);
  const Mute two(zero.address(), 2), three(zero.address(), 3);
  zero.listen(told[0].hooks());
  one.listen(told[1].hooks());
  const int dies = ::fork();
  if (dies == 0) {
    ::pause();
    ::_exit(0);
  }
  zero.watch(2, dies);
  ::kill(dies, SIGKILL);
  EXPECT_EQ(told[0].lines(1), Lines{"lost 2: it has ended"});
  EXPECT_EQ(told[1].lines(1), Lines{"lost 2: it has ended"});
  one.watch(3, pid_of_a_dead_one());  // which process 0 is told
  EXPECT_EQ(told[0].lines(2).back(), "lost 3: it has ended");
  EXPECT_EQ(told[1].lines(2).back(), "lost 3: it has ended");
  ::waitpid(dies, nullptr, 0);
}

// Between MPI_Init and its connection to process 0.
TEST(Liveness, OneThatHasDiedBeforeItConnectedIsLostForAll) {
  std::vector<Told> told(2);
  Liveness zero(4, false);
  Liveness one(1, 4, zero.address(), 5000ms);
  zero.listen(told[0].hooks());
  one.listen(told[1].hooks());
  zero.watch(2, pid_of_a_dead_one());
  EXPECT_EQ(told[0].lines(1), Lines{"lost 2: it has ended"});
  EXPECT_EQ(told[1].lines(1), Lines{"lost 2: it has ended"});
  one.watch(3, pid_of_a_dead_one());  // which process 0 is told
  EXPECT_EQ(told[0].lines(2).back(), "lost 3: it has ended");
  EXPECT_EQ(told[1].lines(2).back(), "lost 3: it has ended");
}

TEST(Liveness, ProcessZeroThatHasDiedIsLostThoughItsConnectionStaysOpen) {
  Told told;
  Liveness zero(2, false);
  zero.set_deadline(0ms);  // it speaks once a second
  Liveness one(1, 2, zero.address(), 5000ms);
  one.listen(told.hooks());
  one.watch(0, pid_of_a_dead_one());
  EXPECT_EQ(told.lines(1), Lines{"lost 0: it has ended"});
}

TEST(Liveness, OneThatHasSaidGoodbyeMayEnd) {
  Told told;
  Liveness zero(3, false);
  const Mute two(zero.address(), 2);
  auto one = std::make_unique<Liveness>(1, 3, zero.address(), 5000ms);
  zero.listen(told.hooks());
  one.reset();
  zero.watch(1, pid_of_a_dead_one());
  zero.watch(2, pid_of_a_dead_one());
  EXPECT_EQ(told.lines(1), Lines{"lost 2: it has ended"});
  EXPECT_EQ(zero.lost(), std::vector{2});
}

TEST(Liveness, StrangersAreDroppedAndTheJobGoesOn) {
  Job job(2);
  const ControlAddress& address = job.all[0]->address();
  boost::asio::io_context io;
  std::vector<boost::asio::ip::tcp::socket> strangers;
  for (int i = 0; i < 200; ++i) {
    strangers.emplace_back(io);
    boost::system::error_code refused;
    strangers.back().connect({boost::asio::ip::make_address(address.hosts[0]), address.port},
                             refused);
    const std::string bytes(static_cast<std::size_t>(i % 50) + 1, static_cast<char>(i));
    boost::asio::write(strangers.back(), boost::asio::buffer(bytes), refused);
  }
  ControlAddress wrong = address;
  wrong.secret = std::string(64, 'x');
  try {
    const Liveness stranger(1, 2, wrong, 60'000ms);  // it does not wait for the deadline
    FAIL() << "connected";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              str_cat("process 1 cannot connect to process 0: 127.0.0.1:", address.port,
                      ": rejected: the processes have different secrets (COSHARD_TOKEN)"));
  }
  job.all[1]->say("still here");
  EXPECT_EQ(job.told[0].lines(1), Lines{"1 said still here"});
  EXPECT_EQ(job.told[1].lines(1), Lines{"1 said still here"});
}

TEST(Liveness, AProcessThatSpeaksNonsenseIsLostAndTheJobGoesOn) {
  for (const int nonsense : {-5, 3, 1'000'000'000, 0}) {  // 0 hears it itself
    Told told;
    Liveness zero(3, false);
    zero.listen(told.hooks());
    boost::asio::io_context io;
    const auto link = connect_control(io, 1, zero.address(), 5000ms, {});
    link->listen({}, {});
    link->send({MessageKind::Lost, nonsense, "it says"});
    io.run_for(std::chrono::milliseconds(20));
    EXPECT_EQ(told.lines(1), Lines{"lost 1: its connection carries unknown data"});
    Liveness two(2, 3, zero.address(), 5000ms);
    two.say("still here");
    EXPECT_EQ(told.lines(2).back(), "2 said still here");
  }
}

TEST(Liveness, WhatAHookThrowsEndsTheConnection) {
  Told told;
  Liveness zero(2, false);
  Liveness::Hooks hooks = told.hooks();
  hooks.said = [](int, const std::string&) { throw std::runtime_error("cannot be read"); };
  zero.listen(hooks);
  Liveness one(1, 2, zero.address(), 5000ms);
  one.say("?");
  EXPECT_EQ(told.lines(1), Lines{"lost 1: its connection carries unknown data"});
}

// They would outlive this process in a program that it has started.
TEST(Liveness, ProgramsThatItStartsHaveNoConnections) {
  const Job job(2);
  int sockets = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    struct stat file {};
    sockaddr_storage name{};
    socklen_t size = sizeof name;
    if (::fstat(fd, &file) != 0 || !S_ISSOCK(file.st_mode)) continue;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) != 0) continue;
    if (name.ss_family != AF_INET && name.ss_family != AF_INET6) continue;
    ++sockets;
    EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0) << fd;
  }
  EXPECT_GE(sockets, 3);  // the door, and both ends of a connection
}

TEST(Liveness, NobodyAtTheAddressIsAnErrorThatNamesIt) {
  ControlAddress address;
  {
    const Liveness gone(2, false);
    address = gone.address();
  }
  try {
    const Liveness one(1, 2, address, 300ms);
    FAIL() << "connected";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              str_cat("process 1 cannot connect to process 0: 127.0.0.1:", address.port,
                      ": Connection refused"));
  }
}

TEST(Liveness, OneThatIsConnectedAndSilentIsNamedAtAQuarterOfTheDeadline) {
  Told told;
  Liveness zero(2, false);
  zero.set_deadline(400ms);
  zero.listen(told.hooks());
  const Mute one(zero.address(), 1);
  EXPECT_EQ(told.lines(1), Lines{"silent 1"});
  EXPECT_TRUE(zero.lost().empty());
}

TEST(Liveness, WhileDataMoveSlowlySomewhereAllAreToldWhoLivesAndMayWaitForThem) {
  for (const int slow : {0, 2}) {
    Liveness zero(4, false);
    Liveness one(1, 4, zero.address(), 5000ms), two(2, 4, zero.address(), 5000ms);
    const Mute three(zero.address(), 3);
    std::atomic<bool> moves{false};
    std::atomic<int> told{0};
    std::promise<void> without_three;
    std::vector<std::vector<int>> rounds(1);  // of those that one is told of; of its thread
    zero.listen({.moves_slowly = [&] { return slow == 0 && moves; }});
    two.listen({.moves_slowly = [&] { return slow == 2 && moves; }});
    one.listen({.may_wait = [&](int process) {
      ++told;
      if (process == 0) rounds.emplace_back();
      rounds.back().push_back(process);
      if (process == 0 && rounds.end()[-2] == std::vector{0, 1, 2} && rounds.size() < 1000) {
        rounds.resize(1000);  // enough
        without_three.set_value();
      }
    }});
    for (Liveness* each : {&zero, &one, &two}) each->set_deadline(800ms);
    std::this_thread::sleep_for(100ms);
    EXPECT_EQ(told, 0);
    moves = true;
    EXPECT_EQ(without_three.get_future().wait_for(20s), std::future_status::ready);
    for (Liveness* each : {&zero, &one, &two}) each->listen({});
  }
}

TEST(Liveness, WhileDataMoveSteadilyInAProcessAllAreToldThatItMayWaitForThem) {
  for (const int moving : {0, 2}) {
    Liveness zero(3, false);
    Liveness one(1, 3, zero.address(), 5000ms), two(2, 3, zero.address(), 5000ms);
    std::atomic<int> rounds{0}, others{0};
    const auto moves = [&] { return true; };
    zero.listen({.moves_steadily = moving == 0 ? moves : std::function<bool()>()});
    two.listen({.moves_steadily = moving == 2 ? moves : std::function<bool()>()});
    one.listen({.may_wait = [&](int process) { ++(process == moving ? rounds : others); }});
    for (Liveness* each : {&zero, &one, &two}) each->set_deadline(800ms);
    for (int i = 0; i < 2000 && rounds < 3; ++i) std::this_thread::sleep_for(10ms);
    for (Liveness* each : {&zero, &one, &two}) each->listen({});
    EXPECT_GE(rounds, 3);
    EXPECT_EQ(others, 0);
  }
}

TEST(Liveness, AcrossHostsItListensOnAllAddresses) {
  Job job(2, true);
  EXPECT_FALSE(job.all[0]->address().hosts.empty());
  job.all[1]->say("hello");
  EXPECT_EQ(job.told[0].lines(1), Lines{"1 said hello"});
}

TEST(Liveness, MessagesPassProcessZeroInOrderAndOnesSentEarlyAreKept) {
  Job job(3);
  using Got = std::vector<std::string>;
  std::mutex mutex;
  std::condition_variable changed;
  Got got;
  const auto hear = [&](std::size_t process) {
    job.all[process]->on_message([&, process](int from, int tag, const std::string& bytes) {
      const std::scoped_lock lock(mutex);
      got.push_back(str_cat(process, " from ", from, " tag ", tag, ": ", bytes.size()));
      changed.notify_all();
    });
  };
  const auto wait_for = [&](std::size_t count) {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, 10s, [&] { return got.size() == count; });
    return std::exchange(got, {});
  };
  job.all[1]->send_message(2, 7, std::string(3'000'000, 'x'));
  job.all[1]->send_message(2, 8, "");
  job.all[2]->send_message(1, 1, "b");
  hear(2);
  EXPECT_EQ(wait_for(2), (Got{"2 from 1 tag 7: 3000000", "2 from 1 tag 8: 0"}));
  hear(1);
  EXPECT_EQ(wait_for(1), (Got{"1 from 2 tag 1: 1"}));
  job.all[0]->send_message(1, 2, "of zero");
  job.all[1]->send_message(1, 3, "to itself");
  EXPECT_EQ(wait_for(2).size(), 2U);
  for (const auto& one : job.all) one->on_message(nullptr);
}

}  // namespace
}  // namespace coshard::testing
