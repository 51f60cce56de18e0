#include "runtime/launch/liveness_link.h"

#include <gtest/gtest.h>

#include <vector>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/write.hpp>

namespace coshard {
namespace {

using boost::asio::ip::tcp;

// Two links that are connected with each other, on one context.
struct DoorPair {
  DoorPair() {
    tcp::acceptor acceptor(io, {boost::asio::ip::address_v4::loopback(), 0});
    tcp::socket one(io);
    one.connect(acceptor.local_endpoint());
    a = std::make_shared<LivenessLink>(std::move(one));
    b = std::make_shared<LivenessLink>(acceptor.accept());
    a->process = 1, b->process = 0;  // they have met
  }
  // Until `so`, or nothing is left to do.
  template <class So>
  void run_until(const So& so) {
    while (!so() && io.run_one_for(std::chrono::seconds(10)) > 0) {
    }
  }
  boost::asio::io_context io;
  std::shared_ptr<LivenessLink> a, b;
};

TEST(LivenessLink, FramesArriveWholeAndInOrder) {
  DoorPair pair;
  std::vector<Frame> got;
  pair.b->listen([&](const auto&, Frame frame) { got.push_back(std::move(frame)); }, nullptr);
  pair.a->start();
  pair.b->start();
  const std::string longest(LivenessLink::kMostText, 'x');
  pair.a->send({FrameKind::Hello, 3, ""});
  pair.a->send({FrameKind::Said, 1, longest + "cut"});
  pair.a->send({FrameKind::Bye, 2, "end"});
  pair.run_until([&] { return got.size() == 3; });
  ASSERT_EQ(got.size(), 3U);
  EXPECT_EQ(got[0].kind, FrameKind::Hello);
  EXPECT_EQ(got[0].process, 3);
  EXPECT_EQ(got[1].text, longest);
  EXPECT_EQ(got[2].text, "end");
  EXPECT_TRUE(pair.a->has_sent_all());
  pair.a->close();
  pair.b->close();
}

TEST(LivenessLink, TellsOnceThatTheOtherEndHasClosed) {
  DoorPair pair;
  std::vector<std::string> ends;
  pair.b->listen(nullptr, [&](const auto&, const std::string& why) { ends.push_back(why); });
  pair.a->start();
  pair.b->start();
  pair.a->close();
  pair.run_until([&] { return !ends.empty(); });
  pair.b->close();
  pair.io.poll();
  EXPECT_EQ(ends, std::vector<std::string>{"its connection closed"});
}

// A link to `process` (-1: to a stranger) ends at once.
void expect_refused(int process, std::uint32_t kind, std::uint32_t bytes) {
  boost::asio::io_context io;
  std::vector<std::string> ends;
  tcp::acceptor acceptor(io, {boost::asio::ip::address_v4::loopback(), 0});
  tcp::socket raw(io);
  raw.connect(acceptor.local_endpoint());
  const auto far = std::make_shared<LivenessLink>(acceptor.accept());
  far->process = process;
  far->listen([](const auto&, const Frame&) { FAIL() << "taken for a frame"; },
              [&](const auto&, const std::string& why) { ends.push_back(why); });
  far->start();
  const std::uint32_t header[5] = {bytes, 1, kind, 0, 0};
  boost::asio::write(raw, boost::asio::buffer(header));
  io.run_for(std::chrono::seconds(10));
  EXPECT_EQ(ends, std::vector<std::string>{"its connection carries unknown data"})
      << "process " << process << ", kind " << kind << ", " << bytes << " bytes";
}

TEST(LivenessLink, AFrameThatIsTooLongEndsItBeforeAnythingIsAllocated) {
  const auto kind = [](FrameKind one) { return static_cast<std::uint32_t>(one); };
  expect_refused(1, kind(FrameKind::Said), 0xffffffffU);
  expect_refused(1, kind(FrameKind::Said), LivenessLink::kMostText + 1);
  expect_refused(1, kind(FrameKind::Message), LivenessLink::kMostMessage + 1);
  expect_refused(-1, kind(FrameKind::Message), LivenessLink::kMostOfStranger + 1);
  expect_refused(1, kind(FrameKind::Message) + 1, 1);
}

}  // namespace
}  // namespace coshard
