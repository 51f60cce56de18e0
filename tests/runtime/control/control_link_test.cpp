#include "runtime/control/control_link.h"

#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <vector>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/write.hpp>

namespace coshard {
namespace {

using boost::asio::ip::tcp;

// Two links that are connected with each other, on one context.
struct LinkPair {
  LinkPair() {
    tcp::acceptor acceptor(io, {boost::asio::ip::address_v4::loopback(), 0});
    tcp::socket one(io);
    one.connect(acceptor.local_endpoint());
    a = std::make_shared<ControlLink>(std::move(one));
    b = std::make_shared<ControlLink>(acceptor.accept());
    a->process = 1, b->process = 0;  // they have met
  }
  // Until `so`, or nothing is left to do.
  template <class So>
  void run_until(const So& so) {
    while (!so() && io.run_one_for(std::chrono::seconds(10)) > 0) {
    }
  }
  boost::asio::io_context io;
  std::shared_ptr<ControlLink> a, b;
};

TEST(ControlLink, MessagesArriveWholeAndInOrder) {
  LinkPair pair;
  std::vector<ControlMessage> got;
  pair.b->listen([&](const auto&, ControlMessage frame) { got.push_back(std::move(frame)); },
                 nullptr);
  pair.a->start();
  pair.b->start();
  const std::string longest(ControlLink::kMostText, 'x');
  pair.a->send({MessageKind::Hello, 3, ""});
  pair.a->send({MessageKind::Said, 1, longest + "cut"});
  pair.a->send({MessageKind::Bye, 2, "end"});
  pair.run_until([&] { return got.size() == 3; });
  ASSERT_EQ(got.size(), 3U);
  EXPECT_EQ(got[0].kind, MessageKind::Hello);
  EXPECT_EQ(got[0].process, 3);
  EXPECT_EQ(got[1].text, longest);
  EXPECT_EQ(got[2].text, "end");
  EXPECT_TRUE(pair.a->has_sent_all());
  pair.a->close();
  pair.b->close();
}

TEST(ControlLink, TellsOnceThatTheOtherEndHasClosed) {
  LinkPair pair;
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
  const auto far = std::make_shared<ControlLink>(acceptor.accept());
  far->process = process;
  far->listen([](const auto&, const ControlMessage&) { FAIL() << "taken for a frame"; },
              [&](const auto&, const std::string& why) { ends.push_back(why); });
  far->start();
  const std::uint32_t header[5] = {bytes, 1, kind, 0, 0};
  boost::asio::write(raw, boost::asio::buffer(header));
  io.run_for(std::chrono::seconds(10));
  EXPECT_EQ(ends, std::vector<std::string>{"its connection carries unknown data"})
      << "process " << process << ", kind " << kind << ", " << bytes << " bytes";
}

TEST(ControlLink, AMessageThatIsTooLongEndsItBeforeAnythingIsAllocated) {
  const auto kind = [](MessageKind one) { return static_cast<std::uint32_t>(one); };
  expect_refused(1, kind(MessageKind::Said), 0xffffffffU);
  expect_refused(1, kind(MessageKind::Said), ControlLink::kMostText + 1);
  expect_refused(1, kind(MessageKind::Relayed), ControlLink::kMostRelayed + 1);
  expect_refused(-1, kind(MessageKind::Relayed), ControlLink::kMostOfStranger + 1);
  expect_refused(1, kind(kLastMessageKind) + 1, 1);
}

TEST(ControlLink, BothEndsNoticeWhenTheOtherHostIsGone) {
  boost::asio::io_context io;
  tcp::acceptor acceptor(io, {boost::asio::ip::address_v4::loopback(), 0});
  tcp::socket one(io);
  one.connect(acceptor.local_endpoint());
  const int fd = one.native_handle();
  const auto link = std::make_shared<ControlLink>(std::move(one));
  link->start();
  const auto option = [fd](int level, int name) {
    int value = -1;
    socklen_t size = sizeof value;
    ::getsockopt(fd, level, name, &value, &size);
    return value;
  };
  EXPECT_EQ(option(SOL_SOCKET, SO_KEEPALIVE), 1);
  EXPECT_EQ(option(IPPROTO_TCP, TCP_USER_TIMEOUT), 60'000);
  EXPECT_LT(option(IPPROTO_TCP, TCP_KEEPIDLE), 60);  // else nothing is asked till then
  EXPECT_LT(option(IPPROTO_TCP, TCP_KEEPINTVL), 60);
  link->close();
}

}  // namespace
}  // namespace coshard
