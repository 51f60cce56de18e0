#include "runtime/comm/mpi/broken_pipe.h"

#include <gtest/gtest.h>

#include "runtime/comm/mpi/mpi_engine.h"
#include "tests/support/fake_mpi.h"
#include "tests/support/set_variable.h"

namespace coshard {
namespace {

using testing::FakeMpi;

int told = 0;

// The program's own disposition of SIGPIPE: counts.
class BrokenPipe : public ::testing::Test {
 protected:
  BrokenPipe() {
    told = 0;
    struct sigaction counts {};
    counts.sa_handler = [](int) { ++told; };
    sigaction(SIGPIPE, &counts, &before_);
    sigemptyset(&only_);
    sigaddset(&only_, SIGPIPE);
  }
  ~BrokenPipe() override { sigaction(SIGPIPE, &before_, nullptr); }
  bool is_pending() const {
    sigset_t pending;
    return sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
  }
  sigset_t only_;

 private:
  struct sigaction before_ {};
};

TEST_F(BrokenPipe, DoesNotReachTheProgramWhileHeldAndDoesAfterwards) {
  {
    const NoBrokenPipe outer(true);
    raise(SIGPIPE);
    {
      const NoBrokenPipe inner(true);
      raise(SIGPIPE);
    }
    raise(SIGPIPE);
    EXPECT_EQ(told, 0);
  }
  EXPECT_EQ(told, 0);
  EXPECT_FALSE(is_pending());
  raise(SIGPIPE);
  EXPECT_EQ(told, 1);
  const NoBrokenPipe unwanted(false);
  raise(SIGPIPE);
  EXPECT_EQ(told, 2);
}

TEST_F(BrokenPipe, OneThatTheProgramHasBlockedItselfStaysPending) {
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &only_, nullptr), 0);
  raise(SIGPIPE);
  { const NoBrokenPipe held(true); }
  EXPECT_TRUE(is_pending());
  ASSERT_EQ(pthread_sigmask(SIG_UNBLOCK, &only_, nullptr), 0);
  EXPECT_EQ(told, 1);
}

// A library that writes to the socket of a process that has died, whatever it is called for.
MpiApi real;
const char* break_sending(const void* data, std::size_t bytes, int to, int tag,
                          std::uint64_t cookie) {
  raise(SIGPIPE);
  return real.send(data, bytes, to, tag, cookie);
}
const char* break_receiving(void* data, std::size_t bytes, int from, int tag,
                            std::uint64_t cookie) {
  raise(SIGPIPE);
  return real.receive(data, bytes, from, tag, cookie);
}
const char* break_polling(const MpiDone** done, int* count) {
  raise(SIGPIPE);
  return real.poll(done, count);
}

// How often the program is told, while two processes on these hosts talk.
int told_between(const std::vector<int>& hosts) {
  FakeMpi mpi(2, 1);
  real = mpi.api(0);
  MpiApi breaking = real;
  breaking.send = break_sending;
  breaking.receive = break_receiving;
  breaking.poll = break_polling;
  MpiEngine a(breaking), b(mpi.api(1));
  for (MpiEngine* engine : {&a, &b}) engine->on_hosts(hosts);
  told = 0;  // the receive of notices, posted before hosts were known
  const std::vector<char> from(200'000, 'x');
  std::vector<char> to(from.size()), back(from.size());
  int over = 0;
  const int tag = a.next_tag(1);
  const auto count = [&over] { ++over; };
  a.send(from.data(), from.size(), 1, tag, count);
  b.receive(to.data(), to.size(), 0, tag, count);
  b.send(from.data(), from.size(), 0, tag, count);
  a.receive(back.data(), back.size(), 1, tag, count);
  a.send_notice(1, MpiEngine::Bytes(8));
  while (over < 4 || a.in_flight() > 0) a.drive_while_waiting(), a.drive(), b.drive();
  EXPECT_EQ(to, from);
  EXPECT_EQ(back, from);
  return told;
}

TEST_F(BrokenPipe, WithinMpiEndsNoProcessOfAnotherHost) { EXPECT_EQ(told_between({0, 1}), 0); }

TEST_F(BrokenPipe, WithinMpiEndsNoProcessOfThisHostWhereThatMayUseTcp) {
  for (const char* name : {"OMPI_MCA_btl", "UCX_TLS"}) {
    const testing::SetVariable tcp(name, "tcp,self");
    EXPECT_EQ(told_between({0, 0}), 0) << name;
  }
}

}  // namespace
}  // namespace coshard
