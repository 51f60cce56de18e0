#include "tools/run/failure_socket.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <vector>

#include "runtime/control/failure_record.h"

namespace coshard::job {
namespace {

struct Listening {
  Listening() { ::setenv(kFailureVariable, socket.name().c_str(), 1); }
  ~Listening() { ::unsetenv(kFailureVariable); }
  std::vector<std::string> got;
  boost::asio::io_context io;
  FailureSocket socket{io, [this](std::string bytes, int pid) {
                         EXPECT_EQ(pid, ::getpid());
                         got.push_back(std::move(bytes));
                       }};
};

TEST(FailureSocket, ReceivesWhatTheLibraryReports) {
  Listening here;
  const FailureRecord record{"timeout", 1, "late", "mlp", "a.cpp:3", {0}, false};
  report_failure(record);
  here.io.run_for(std::chrono::milliseconds(20));
  ASSERT_EQ(here.got.size(), 1U);
  EXPECT_EQ(record_of(std::string_view(here.got[0])), record);
  report_recovery();
  report_recovery();  // it has been told
  here.socket.drain();
  ASSERT_EQ(here.got.size(), 2U);
  EXPECT_EQ(here.got[1], "");
  report_out_of_memory();
  here.socket.drain();
  ASSERT_EQ(here.got.size(), 3U);
  const auto lack = record_of(std::string_view(here.got[2]));
  ASSERT_TRUE(lack);
  EXPECT_EQ(lack->kind, "device failed");
  EXPECT_EQ(lack->rank, -1);
}

TEST(FailureSocket, NamesDiffer) {
  const Listening one, other;
  EXPECT_NE(one.socket.name(), other.socket.name());
}

}  // namespace
}  // namespace coshard::job
