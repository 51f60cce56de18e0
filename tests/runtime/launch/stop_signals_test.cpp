#include "runtime/launch/stop_signals.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <optional>
#include <thread>

namespace coshard {
namespace {

using namespace std::chrono_literals;

TEST(StopSignals, TheFirstRequestsAStop) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const StopSignals signals("program");
    EXPECT_FALSE(signals.token().stop_requested());
    ::raise(signal);
    for (int i = 0; i < 30'000 && !signals.token().stop_requested(); ++i)
      std::this_thread::sleep_for(1ms);
    EXPECT_TRUE(signals.token().stop_requested());
    struct sigaction now {};
    ::sigaction(signal, nullptr, &now);
    EXPECT_EQ(now.sa_handler, SIG_DFL);
  }
}

TEST(StopSignals, IgnoredOnesStayIgnored) {
  struct sigaction before {
  }, ignored{}, now{};
  ignored.sa_handler = SIG_IGN;
  ::sigaction(SIGINT, &ignored, &before);
  {
    const StopSignals signals("program");
    ::sigaction(SIGINT, nullptr, &now);
    EXPECT_EQ(now.sa_handler, SIG_IGN);
  }
  ::sigaction(SIGINT, &before, nullptr);
}

}  // namespace
}  // namespace coshard
