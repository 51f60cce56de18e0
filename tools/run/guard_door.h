#pragma once
// How the guards of a job and its `coshard run` connect: both ends prove that they know the job's
// token, which is never sent (runtime/launch/proof.h). A connecting process receives 32 digits; a
// guard answers with Hello, "RANK DIGITS PROOF", and receives the other proof.
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>

namespace coshard::job {

// The side of `coshard run`; on the thread of `io`. Strangers are dropped: at once if they send
// something wrong, silent ones after a timeout, or when many connect.
class GuardDoor {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  struct Options {
    std::string token;
    int ranks = 1;
    bool local = true;  // listens only on loopback
    std::chrono::milliseconds patience{5000};
  };
  // `entered` gets the connections of guards.
  GuardDoor(boost::asio::io_context& io, Options options,
            std::function<void(int rank, Socket)> entered);
  // Listening begins in the constructor, but nobody is admitted before open().
  unsigned short port() const { return acceptor_.local_endpoint().port(); }
  void open();
  // Admits nobody from now on.
  void close();

 private:
  template <class T>
  using Await = boost::asio::awaitable<T>;
  struct Stranger {
    Socket socket;
    boost::asio::steady_timer patience;
    void drop();
  };
  using StrangerPtr = std::shared_ptr<Stranger>;
  Await<void> accept();
  Await<void> welcome(StrangerPtr stranger);
  Await<int> rank_behind(Socket& socket);

  boost::asio::io_context& io_;
  Options options_;
  std::function<void(int, Socket)> entered_;
  boost::asio::ip::tcp::acceptor acceptor_;
  std::deque<StrangerPtr> strangers_;
};

// Tries the addresses, "10.0.0.1:4242,10.1.0.1:4242", one after the other, until `coshard run` with
// this token answers; repeats until `patience` is over, unless nobody listens at any of them.
// Blocks. Error{CommFailed}: none answers.
GuardDoor::Socket connect_to_run(boost::asio::io_context& io, const std::string& addresses,
                                 const std::string& token, int rank,
                                 std::chrono::milliseconds patience);

}  // namespace coshard::job
