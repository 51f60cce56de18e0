// Which connections a control channel accepts, and which it drops.
#include "runtime/control/control_acceptor.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include <coshard/runtime/error.h>
#include <coshard/runtime/sanitizers.h>
#include "runtime/control/proof.h"
#include "runtime/host.h"

namespace coshard {
namespace {

using namespace std::chrono_literals;
using boost::asio::ip::tcp;

// An acceptor that is served by a thread.
struct Served {
  explicit Served(const std::string& secret, std::chrono::milliseconds patience = 60s)
      : acceptor(
            io, "process 0",
            [this](const auto& link) {
              entered.push_back(link);
              return link->process < 8;
            },
            patience) {
    address = acceptor.open({{}, 0, secret}, false, 0ms);
    thread = std::thread([this] { io.run(); });
  }
  ~Served() {
    boost::asio::post(io, [this] {
      acceptor.close();
      for (const auto& link : entered) link->close();
      io.stop();
    });
    thread.join();
  }
  boost::asio::io_context io;
  std::vector<std::shared_ptr<ControlLink>> entered;
  ControlAcceptor acceptor;
  ControlAddress address;
  std::thread thread;
};

std::string problem_of(int process, const ControlAddress& address,
                       std::chrono::milliseconds deadline = 300ms, bool may_be_earlier = true) {
  try {
    boost::asio::io_context io;
    connect_control(io, process, address, deadline, {"cannot connect", may_be_earlier})->close();
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(ControlAcceptor, AcceptsWhoKnowsTheSecretAndNobodyElse) {
  Served served("the secret");
  EXPECT_EQ(problem_of(1, served.address), "");
  for (const char* secret : {"", "the secreT", "the secret "}) {
    ControlAddress wrong = served.address;
    wrong.secret = secret;
    EXPECT_NE(
        problem_of(1, wrong).find("rejected: the processes have different secrets (COSHARD_TOKEN)"),
        std::string::npos);
  }
}

// Something else listens there, and knows no secret either.
TEST(ControlAcceptor, AProcessDoesNotTrustWhoKnowsNoSecret) {
  boost::asio::io_context io;
  tcp::acceptor acceptor(io, {boost::asio::ip::address_v4::loopback(), 0});
  std::thread liar([&] {
    tcp::socket socket = acceptor.accept();
    const std::string lie(64, 'a');
    const std::uint32_t header[5] = {64, 0, 0, 0, 0};
    boost::system::error_code closed;
    for (int i = 0; i < 2; ++i) {
      boost::asio::write(socket, boost::asio::buffer(header), closed);
      boost::asio::write(socket, boost::asio::buffer(lie), closed);
    }
    char last = 0;
    boost::asio::read(socket, boost::asio::buffer(&last, 1), closed);
    while (!closed) boost::asio::read(socket, boost::asio::buffer(&last, 1), closed);
  });
  ControlAddress address{{"127.0.0.1"}, acceptor.local_endpoint().port(), "the secret"};
  EXPECT_NE(problem_of(1, address).find("the process that answered is not part of this job"),
            std::string::npos);
  liar.join();
}

// A proof for one connection is none for another: each has a nonce of its own.
TEST(ControlAcceptor, AProofThatWasOverheardIsOfNoUse) {
  Served served("the secret");
  boost::asio::io_context io;
  std::string frame;
  for (int i = 0; i < 2; ++i) {
    tcp::socket socket(io);
    socket.connect({boost::asio::ip::make_address("127.0.0.1"), served.address.port});
    std::uint32_t header[5] = {};
    std::string nonce(32, ' ');
    boost::asio::read(socket, boost::asio::buffer(header));
    boost::asio::read(socket, boost::asio::buffer(nonce));
    if (i == 0)
      frame = std::string(32, 'n') +
              proof_of(ProofOf::Connecting, "the secret", 1, std::string(32, 'n'), nonce);
    const std::uint32_t hello[5] = {static_cast<std::uint32_t>(frame.size()), 1, 0, 0, 0};
    boost::asio::write(socket, boost::asio::buffer(hello));
    boost::asio::write(socket, boost::asio::buffer(frame));
    boost::asio::read(socket, boost::asio::buffer(header));
    EXPECT_EQ(header[2],
              static_cast<std::uint32_t>(i == 0 ? MessageKind::Hello : MessageKind::Refused));
  }
}

constexpr bool kKeepsWhatIsFreed = COSHARD_ASAN;

std::size_t resident_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == "VmRSS:") {
      std::size_t kib = 0;
      status >> kib;
      return kib;
    }
  return 0;
}

// They connect, announce 4 GiB, and stay: nothing is allocated for them, and few are kept.
TEST(ControlAcceptor, TenThousandHalfOpenConnectionsCostNothing) {
  Served served("the secret");
  boost::asio::io_context io;
  std::vector<tcp::socket> held;
  const std::size_t before = resident_kib();
  for (int i = 0; i < 10'000; ++i) {
    tcp::socket socket(io);
    boost::system::error_code refused;
    socket.connect({boost::asio::ip::make_address("127.0.0.1"), served.address.port}, refused);
    if (refused) continue;
    const std::uint32_t header[5] = {i % 2 == 0 ? 0xFFFFFFFFU : 200U, 1, 0, 0, 0};
    if (i % 3 != 0) boost::asio::write(socket, boost::asio::buffer(header), refused);
    if (held.size() < 500) held.push_back(std::move(socket));
  }
  EXPECT_EQ(problem_of(1, served.address), "");
  EXPECT_TRUE(kKeepsWhatIsFreed || resident_kib() < before + 32 * 1024);
}

TEST(ControlAcceptor, APortThatIsTakenIsWaitedForAndThenNamed) {
  boost::asio::io_context io;
  auto taken = std::make_unique<tcp::acceptor>(
      io, tcp::endpoint(boost::asio::ip::address_v4::loopback(), 0));
  const std::uint16_t port = taken->local_endpoint().port();
  ControlAcceptor acceptor(io, "process 0", [](const auto&) { return true; });
  try {
    (void)acceptor.open({{}, port, "s"}, false, 100ms);
    FAIL() << "opened";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), str_cat("process 0 cannot listen on port ", port,
                                                 ": the port has been in use for 0.1 s"));
  }
  std::thread frees([&] {
    std::this_thread::sleep_for(50ms);
    taken.reset();
  });
  EXPECT_EQ(acceptor.open({{}, port, "s"}, false, 10'000ms).port, port);
  frees.join();
  acceptor.close();
}

// The others may be earlier than process 0.
TEST(ControlAcceptor, AProcessWaitsForProcessZero) {
  std::uint16_t port = 0;
  {
    const Served before("s");
    port = before.address.port;
  }
  boost::asio::io_context io, theirs;
  ControlAcceptor acceptor(io, "process 0", [](const auto& link) { return link != nullptr; });
  std::thread late([&] {
    std::this_thread::sleep_for(50ms);
    (void)acceptor.open({{}, port, "s"}, false, 5000ms);
    io.run_for(3s);
  });
  EXPECT_NO_THROW(connect_control(theirs, 1, {{"127.0.0.1"}, port, "s"}, 10'000ms, {})->close());
  io.stop();
  late.join();
  acceptor.close();
}

tcp::socket stranger(boost::asio::io_context& io, const Served& served, std::string_view says) {
  tcp::socket socket(io);
  boost::system::error_code refused;
  socket.connect({boost::asio::ip::address_v4::loopback(), served.address.port}, refused);
  boost::asio::write(socket, boost::asio::buffer(says), refused);
  return socket;
}

// What comes until the other end closes.
std::string read_to_end(tcp::socket& socket) {
  std::string all;
  boost::system::error_code closed;
  boost::asio::read(socket, boost::asio::dynamic_buffer(all), closed);
  return all;
}

std::string message_of(std::uint32_t kind, std::string_view text, std::uint32_t bytes) {
  const std::uint32_t header[5] = {bytes, 1, kind, 0, 0};
  return std::string(reinterpret_cast<const char*>(header), sizeof header).append(text);
}

constexpr std::size_t kHello = 20 + 32;  // bytes of the first message, a nonce

// Another host of the list may have something else there.
TEST(ControlAcceptor, TheHostsAreTriedInTurn) {
  Served served("the secret");
  ControlAddress address = served.address;
  address.hosts = {"127.0.0.2", "127.0.0.1"};
  EXPECT_EQ(problem_of(2, address), "");
}

TEST(ControlAcceptor, WrongMessagesAreDroppedAtOnce) {
  Served served("the secret");
  boost::asio::io_context io;
  std::mt19937 random(1);
  std::vector<std::string> wrong{
      "GET / HTTP/1.1\r\n\r\n          ",
      message_of(0, std::string(96, '0'), 96),
      message_of(0, "", 0),
      message_of(0, "the secret", 10),
      message_of(0, "", 0xFFFFFFFFU),
      message_of(1, std::string(96, '0'), 96),
      message_of(static_cast<std::uint32_t>(kLastMessageKind) + 1, "", 0),
  };
  for (int i = 0; i < 200; ++i) {
    std::string bytes(64 + random() % 4000, ' ');
    for (char& byte : bytes) byte = static_cast<char>(1 + random() % 255);
    wrong.push_back(bytes);
  }
  for (const std::string& says : wrong) {
    tcp::socket socket = stranger(io, served, says);
    EXPECT_LE(read_to_end(socket).size(), kHello + 20) << says;  // Refused, at most
  }
  EXPECT_EQ(problem_of(1, served.address), "");
}

TEST(ControlAcceptor, SilentConnectionsAreDroppedInTime) {
  Served served("the secret", 50ms);
  boost::asio::io_context io;
  for (const std::size_t bytes : {0U, 2U}) {
    tcp::socket silent = stranger(io, served, std::string(bytes, '\0'));
    EXPECT_EQ(read_to_end(silent).size(), kHello);  // it ends
  }
}

TEST(ControlAcceptor, NobodyListensIsFinalUnlessItMayBeLate) {
  ControlAddress address{{"127.0.0.1"}, 0, "s"};
  {
    const Served before("s");
    address.port = before.address.port;
  }
  EXPECT_NE(problem_of(3, address, 3600s, false)
                .find(str_cat("cannot connect: 127.0.0.1:", address.port, ": ")),
            std::string::npos);
}

// In a network namespace of its own, whose loopback interface is down.
TEST(ControlAcceptor, WithoutLoopbackItSaysWhatIsMissing) {
  EXPECT_NE(listen_remedy(EADDRNOTAVAIL).find("lo up"), std::string::npos);
  EXPECT_EQ(listen_remedy(EACCES), "");
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) ::_exit(77);
    boost::asio::io_context io;
    try {
      ControlAcceptor acceptor(io, "coshard run", {});
      (void)acceptor.open({{}, 0, "s"}, false, 0ms);
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

}  // namespace
}  // namespace coshard
