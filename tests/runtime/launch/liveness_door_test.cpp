// Who gets in to process 0, and who does not.
#include "runtime/launch/liveness_door.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include <coshard/runtime/error.h>
#include <coshard/runtime/sanitizers.h>
#include "runtime/launch/proof.h"

namespace coshard {
namespace {

using namespace std::chrono_literals;
using boost::asio::ip::tcp;

// A door that is served by a thread.
struct Served {
  explicit Served(const std::string& secret) {
    address = door.open({{}, 0, secret}, false, 0ms);
    thread = std::thread([this] { io.run(); });
  }
  ~Served() {
    boost::asio::post(io, [this] {
      door.close();
      for (const auto& link : entered) link->close();
      io.stop();
    });
    thread.join();
  }
  boost::asio::io_context io;
  std::vector<std::shared_ptr<LivenessLink>> entered;
  LivenessDoor door{io, [this](const auto& link) {
                      entered.push_back(link);
                      return link->process < 8;
                    }};
  Liveness::Address address;
  std::thread thread;
};

std::string problem_of(int process, const Liveness::Address& address) {
  try {
    boost::asio::io_context io;
    connect_to_zero(io, process, address, 300ms)->close();
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(LivenessDoor, OpensToWhoKnowsTheSecretAndToNobodyElse) {
  Served served("the secret");
  EXPECT_EQ(problem_of(1, served.address), "");
  for (const char* secret : {"", "the secreT", "the secret "}) {
    Liveness::Address wrong = served.address;
    wrong.secret = secret;
    EXPECT_NE(
        problem_of(1, wrong).find("rejected: the processes have different secrets (COSHARD_TOKEN)"),
        std::string::npos);
  }
}

// Something else listens there, and knows no secret either.
TEST(LivenessDoor, AProcessDoesNotTrustWhoKnowsNoSecret) {
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
  Liveness::Address address{{"127.0.0.1"}, acceptor.local_endpoint().port(), "the secret"};
  EXPECT_NE(problem_of(1, address).find("the process that answered is not part of this job"),
            std::string::npos);
  liar.join();
}

// A proof for one connection is none for another: each has a nonce of its own.
TEST(LivenessDoor, AProofThatWasOverheardIsOfNoUse) {
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
              proof_of(ProofOf::Process, "the secret", 1, std::string(32, 'n'), nonce);
    const std::uint32_t hello[5] = {static_cast<std::uint32_t>(frame.size()), 1, 0, 0, 0};
    boost::asio::write(socket, boost::asio::buffer(hello));
    boost::asio::write(socket, boost::asio::buffer(frame));
    boost::asio::read(socket, boost::asio::buffer(header));
    EXPECT_EQ(header[2],
              static_cast<std::uint32_t>(i == 0 ? FrameKind::Hello : FrameKind::Refused));
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
TEST(LivenessDoor, TenThousandHalfOpenConnectionsCostNothing) {
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

TEST(LivenessDoor, APortThatIsTakenIsWaitedForAndThenNamed) {
  boost::asio::io_context io;
  auto taken = std::make_unique<tcp::acceptor>(
      io, tcp::endpoint(boost::asio::ip::address_v4::loopback(), 0));
  const std::uint16_t port = taken->local_endpoint().port();
  LivenessDoor door(io, [](const auto&) { return true; });
  try {
    (void)door.open({{}, port, "s"}, false, 100ms);
    FAIL() << "opened";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), str_cat("process 0 cannot listen on port ", port,
                                                 ": the port has been in use for 0.1 s"));
  }
  std::thread frees([&] {
    std::this_thread::sleep_for(50ms);
    taken.reset();
  });
  EXPECT_EQ(door.open({{}, port, "s"}, false, 10'000ms).port, port);
  frees.join();
  door.close();
}

// The others may be earlier than process 0.
TEST(LivenessDoor, AProcessWaitsForProcessZero) {
  std::uint16_t port = 0;
  {
    const Served before("s");
    port = before.address.port;
  }
  boost::asio::io_context io, theirs;
  LivenessDoor door(io, [](const auto& link) { return link != nullptr; });
  std::thread late([&] {
    std::this_thread::sleep_for(50ms);
    (void)door.open({{}, port, "s"}, false, 5000ms);
    io.run_for(3s);
  });
  EXPECT_NO_THROW(connect_to_zero(theirs, 1, {{"127.0.0.1"}, port, "s"}, 10'000ms)->close());
  io.stop();
  late.join();
  door.close();
}

}  // namespace
}  // namespace coshard
