// examples/asio_interop: a server that answers while its rank waits for others.
#include <gtest/gtest.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <chrono>
#include <future>
#include <thread>
#include <vector>

#include "tests/integration/child.h"
#include "tests/support/json.h"

namespace coshard::testing {
namespace {

using namespace std::chrono_literals;
using boost::asio::ip::tcp;

int port_of(const std::string& out) {
  return std::stoi(out.substr(out.find("127.0.0.1:") + sizeof "127.0.0.1:" - 1));
}

// What the server says to one who connects, until it hangs up; empty: nothing.
std::string ask(int port) {
  boost::asio::io_context context;
  tcp::socket socket(context);
  boost::system::error_code error;
  const auto address = boost::asio::ip::address_v4::loopback();
  std::string text;
  socket.connect(tcp::endpoint(address, static_cast<std::uint16_t>(port)), error);
  if (!error) boost::asio::read(socket, boost::asio::dynamic_buffer(text), error);
  return text;
}

struct Answer {
  std::string text;
  std::chrono::steady_clock::duration took{};
};
Answer timed_ask(int port) {
  const auto begin = std::chrono::steady_clock::now();
  std::string text = ask(port);
  return {std::move(text), std::chrono::steady_clock::now() - begin};
}
double ms(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

// Rank 1 is 2.5 s late in each step, so rank 0 waits in its collectives nearly all of the time.
TEST(StatusServer, AnswersWhileItsRankWaitsForALateOne) {
  Child program({ASIO_INTEROP_PROGRAM, "--ranks", "2", "--steps", "2", "--straggle", "2500"});
  ASSERT_TRUE(program.says("\n")) << program.err();
  const int port = port_of(program.out());
  std::vector<Answer> answers;
  for (int i = 0; i < 8; ++i) {
    answers.push_back(timed_ask(port));
    std::this_thread::sleep_for(150ms);
  }
  int last_step = 0;
  for (const Answer& answer : answers) {
    EXPECT_LT(ms(answer.took), 1000) << answer.text;
    ASSERT_TRUE(json_holds(answer.text,
                           "assert set(d) == {'step', 'loss', 'ranks'}\n"
                           "assert d['ranks'] == 2 and 0 <= d['step'] < 2"))
        << answer.text;
    const int step = std::stoi(answer.text.substr(answer.text.find(':') + 1));
    EXPECT_GE(step, last_step);
    last_step = step;
  }
  EXPECT_EQ(program.end(), 0) << program.err();
  EXPECT_EQ(ask(port), "") << "somebody still listens";
}

TEST(StatusServer, AnswersManyBesideASingleRank) {
  Child program({ASIO_INTEROP_PROGRAM, "--ranks", "1", "--steps", "150", "--straggle", "10"});
  ASSERT_TRUE(program.says("\n")) << program.err();
  const int port = port_of(program.out());
  std::vector<std::future<std::string>> clients;
  for (int i = 0; i < 10; ++i) clients.push_back(std::async(std::launch::async, ask, port));
  for (auto& client : clients) EXPECT_NE(client.get().find("\"ranks\": 1}\n"), std::string::npos);
  EXPECT_EQ(program.end(), 0) << program.err();
}

TEST(StatusServer, EndsWithItsTrainingWhenNobodyAsks) {
  for (const char* ranks : {"1", "3"}) {
    Child program({ASIO_INTEROP_PROGRAM, "--ranks", ranks, "--steps", "5"});
    EXPECT_EQ(program.end(), 0) << program.err();
    EXPECT_NE(program.out().find("{\"step\": 5, \"loss\": "), std::string::npos) << program.out();
  }
}

TEST(StatusServer, BadInputIsNamed) {
  boost::asio::io_context context;
  tcp::acceptor taken(context, tcp::endpoint(boost::asio::ip::address_v4::loopback(), 0));
  const std::string port = std::to_string(taken.local_endpoint().port());
  Child program({ASIO_INTEROP_PROGRAM, "--port", port});
  EXPECT_EQ(program.end(), 2);
  EXPECT_NE(program.err().find("--port " + port + ": Address already in use"), std::string::npos)
      << program.err();
  Child no_steps({ASIO_INTEROP_PROGRAM, "--steps", "0"});
  EXPECT_EQ(no_steps.end(), 2);
  EXPECT_NE(no_steps.err().find("--steps"), std::string::npos) << no_steps.err();
}

}  // namespace
}  // namespace coshard::testing
