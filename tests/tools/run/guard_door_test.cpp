// Who gets in to `coshard run`, and who does not.
#include "tools/run/guard_door.h"

#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <random>
#include <thread>
#include <vector>

#include <coshard/runtime/error.h>
#include "runtime/launch/host.h"
#include "runtime/launch/proof.h"
#include "tools/run/message.h"

namespace coshard::job {
namespace {

using namespace std::chrono_literals;
namespace asio = boost::asio;
using asio::ip::tcp;

// A door that is served by a thread.
struct Served {
  explicit Served(std::chrono::milliseconds patience = 60s)
      : door(io, {"the token", 4, true, patience}, [this](int rank, tcp::socket socket) {
          entered.push_back(rank);
          sockets.push_back(std::move(socket));
          ++came;
        }) {
    door.open();
    thread = std::thread([this] { io.run(); });
  }
  ~Served() { end(0); }
  // Who has entered, once so many have.
  std::vector<int> end(int expected = 1) {
    while (came < expected) std::this_thread::sleep_for(1ms);
    if (thread.joinable()) {
      asio::post(io, [this] { door.close(); });
      asio::post(io, [this] { io.stop(); });
      thread.join();
    }
    return entered;
  }
  std::string address() const { return str_cat("127.0.0.1:", door.port()); }
  asio::io_context io;
  std::vector<int> entered;
  std::atomic<int> came{0};
  std::vector<tcp::socket> sockets;
  GuardDoor door;
  std::thread thread;
};

std::string problem_of(const std::string& addresses, const std::string& token, int rank,
                       std::chrono::milliseconds patience = 0ms) {
  try {
    asio::io_context io;
    (void)connect_to_run(io, addresses, token, rank, patience);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

tcp::socket stranger(asio::io_context& io, const Served& served, const std::string& says) {
  tcp::socket socket(io);
  boost::system::error_code refused;
  socket.connect({asio::ip::address_v4::loopback(), served.door.port()}, refused);
  asio::write(socket, asio::buffer(says), refused);
  return socket;
}

// What comes until the other end closes.
std::string read_to_end(tcp::socket& socket) {
  std::string all;
  boost::system::error_code closed;
  asio::read(socket, asio::dynamic_buffer(all), closed);
  return all;
}

std::string hello_of(const std::string& text) {
  const MessageHeader header = header_of(MessageKind::Hello, text.size());
  return std::string(header.begin(), header.end()) + text;
}

TEST(GuardDoor, OpensToAGuardOfTheJobAndToNobodyElse) {
  Served served;
  EXPECT_EQ(problem_of(served.address(), "the token", 2), "");
  for (const char* token : {"", "the tokeN", "the token "})
    EXPECT_NE(problem_of(served.address(), token, 1).find("rank 1 on "), std::string::npos);
  for (const int rank : {-1, 4}) EXPECT_NE(problem_of(served.address(), "the token", rank), "");
  EXPECT_EQ(served.end(), std::vector{2});
}

// Another host of the list may have something else there.
TEST(GuardDoor, AGuardTriesTheAddressesInTurnAndTrustsNobodyWithoutTheToken) {
  Served served;
  asio::io_context io;
  tcp::acceptor acceptor(io, {asio::ip::address_v4::loopback(), 0});
  std::string heard;
  std::thread liar([&] {
    tcp::socket socket = acceptor.accept();
    boost::system::error_code gone;
    asio::write(socket, asio::buffer(std::string(96, 'a')), gone);
    heard = read_to_end(socket);
  });
  const std::string other = str_cat("127.0.0.1:", acceptor.local_endpoint().port());
  EXPECT_EQ(problem_of(other + ',' + served.address(), "the token", 0), "");
  liar.join();
  EXPECT_GT(heard.size(), 64U);
  EXPECT_EQ(heard.find("token"), std::string::npos);
  EXPECT_EQ(served.end(), std::vector{0});
}

// In a network namespace of its own, whose loopback interface is down.
TEST(GuardDoor, WithoutLoopbackItSaysWhatIsMissing) {
  EXPECT_NE(listen_remedy(EADDRNOTAVAIL).find("lo up"), std::string::npos);
  EXPECT_EQ(listen_remedy(EACCES), "");
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) ::_exit(77);
    asio::io_context io;
    try {
      const GuardDoor door(io, {"the token", 4, true, 60s}, {});
      ::_exit(78);  // newer kernels listen on it all the same
    } catch (const Error& error) {
      const std::string text = error.what();
      const bool told = text.find("127.0.0.1") != text.npos && text.find("lo up") != text.npos;
      ::_exit(told ? 0 : 1);
    } catch (...) {
    }
    ::_exit(2);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no namespaces for this user";
  if (WEXITSTATUS(status) == 78) GTEST_SKIP() << "this kernel has a loopback without an interface";
  EXPECT_EQ(status, 0);
}

int option_of(tcp::socket& socket, int level, int option) {
  int value = -1;
  socklen_t size = sizeof value;
  ::getsockopt(socket.native_handle(), level, option, &value, &size);
  return value;
}

TEST(GuardDoor, BothEndsNoticeWhenTheOtherHostIsGone) {
  Served served;
  asio::io_context io;
  std::vector<tcp::socket> ends;
  ends.push_back(connect_to_run(io, served.address(), "the token", 0, 30s));
  served.end();
  ends.push_back(std::move(served.sockets.front()));
  for (tcp::socket& socket : ends) {
    EXPECT_EQ(option_of(socket, SOL_SOCKET, SO_KEEPALIVE), 1);
    EXPECT_EQ(option_of(socket, IPPROTO_TCP, TCP_USER_TIMEOUT), 60'000);
    EXPECT_LT(option_of(socket, IPPROTO_TCP, TCP_KEEPIDLE), 60);  // else nothing is asked till then
    EXPECT_LT(option_of(socket, IPPROTO_TCP, TCP_KEEPINTVL), 60);
  }
}

TEST(GuardDoor, AGuardDoesNotWaitWhereNobodyListens) {
  asio::io_context io;
  unsigned short port = 0;
  {
    const tcp::acceptor closed(io, {asio::ip::address_v4::loopback(), 0});
    port = closed.local_endpoint().port();
  }
  EXPECT_NE(problem_of(str_cat("127.0.0.1:", port), "the token", 3, 3600s)
                .find(str_cat("cannot reach `coshard run` at 127.0.0.1:", port)),
            std::string::npos);
}

TEST(GuardDoor, WhoSaysSomethingWrongIsDroppedAtOnceWithoutAnAnswer) {
  Served served;
  asio::io_context io;
  std::mt19937 random(1);
  std::vector<std::string> wrong{
      "GET / HTTP/1.1\r\n\r\n",
      hello_of("1 " + std::string(32, '0') + ' ' + std::string(64, '0')),
      hello_of(""),
      hello_of("1 the token"),
      hello_of(std::string(109, '1')),
      {0, '\xff', '\xff', 0, 0},  // a Hello of 64 KiB
      {0, '\xff', '\xff', '\xff', '\xff'},
  };
  const MessageHeader other = header_of(MessageKind::Out, 3);
  wrong.push_back(std::string(other.begin(), other.end()) + "abc");
  for (int i = 0; i < 200; ++i) {
    std::string bytes(64 + random() % 4000, ' ');
    for (char& byte : bytes) byte = static_cast<char>(1 + random() % 255);
    wrong.push_back(bytes);
  }
  for (const std::string& says : wrong) {
    tcp::socket socket = stranger(io, served, says);
    EXPECT_LE(read_to_end(socket).size(), 32U) << says;
  }
  EXPECT_EQ(problem_of(served.address(), "the token", 1), "");
  EXPECT_EQ(served.end(), std::vector{1});
}

// A proof for one connection is none for another: each has digits of its own.
TEST(GuardDoor, AProofThatWasOverheardIsOfNoUse) {
  Served served;
  asio::io_context io;
  std::string hello;
  for (int i = 0; i < 2; ++i) {
    tcp::socket socket = stranger(io, served, "");
    std::string drawn(32, ' ');
    asio::read(socket, asio::buffer(drawn));
    const std::string own(32, 'n');
    if (i == 0)
      hello =
          hello_of(str_cat("1 ", own, ' ', proof_of(ProofOf::Process, "the token", 1, own, drawn)));
    asio::write(socket, asio::buffer(hello));
    std::string proof(64, ' ');
    boost::system::error_code closed;
    EXPECT_EQ(asio::read(socket, asio::buffer(proof), closed), i == 0 ? 64U : 0U);
  }
  EXPECT_EQ(served.end(), std::vector{1});
}

TEST(GuardDoor, WhoSaysNothingIsDroppedInTime) {
  Served served(50ms);
  asio::io_context io;
  for (const std::size_t bytes : {0U, 2U}) {
    tcp::socket silent = stranger(io, served, std::string(bytes, '\0'));
    EXPECT_EQ(read_to_end(silent).size(), 32U);  // it ends
  }
}

// Few of them are kept.
TEST(GuardDoor, ManyHalfOpenConnectionsDoNotKeepAGuardOut) {
  Served served;
  asio::io_context io;
  std::vector<tcp::socket> held;
  for (int i = 0; i < 3000; ++i) {
    tcp::socket socket = stranger(io, served, std::string(static_cast<std::size_t>(i % 5), '\0'));
    if (held.size() < 300) held.push_back(std::move(socket));
  }
  EXPECT_EQ(problem_of(served.address(), "the token", 3, 30s), "");
  std::size_t open = 0;
  for (tcp::socket& socket : held) {
    socket.non_blocking(true);
    boost::system::error_code state;
    char bytes[64];
    while (!state) (void)socket.read_some(asio::buffer(bytes), state);
    if (state == asio::error::would_block) ++open;
  }
  EXPECT_LE(open, 64U);
  EXPECT_EQ(served.end(), std::vector{3});
}

}  // namespace
}  // namespace coshard::job
