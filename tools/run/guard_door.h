#pragma once
// How the guards of a job and its `coshard run` find each other: both ends prove that they know the
// job's token, which itself is not sent (runtime/launch/proof.h). Whoever connects is told 32 digits;
// a guard answers with Hello, "RANK DIGITS PROOF", and is told the other proof.
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

// Of `coshard run`; on the thread of `io`. Strangers are dropped: those who say something wrong at
// once, the silent ones in time, or when many come.
class GuardDoor {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  struct Options {
    std::string token;
    int ranks = 1;
    bool local = true;  // listens on loopback alone
    std::chrono::milliseconds patience{5000};
  };
  // `entered` gets the connections of guards.
  GuardDoor(boost::asio::io_context& io, Options options,
            std::function<void(int rank, Socket)> entered);
  // Listens from then on, though nobody is let in before open().
  unsigned short port() const { return acceptor_.local_endpoint().port(); }
  void open();
  // No one else can come.
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
// this token answers; in turns until `patience` is over, unless nobody listens anywhere. Blocks;
// Error{CommFailed}: none does.
GuardDoor::Socket connect_to_run(boost::asio::io_context& io, const std::string& addresses,
                                 const std::string& token, int rank,
                                 std::chrono::milliseconds patience);

}  // namespace coshard::job
