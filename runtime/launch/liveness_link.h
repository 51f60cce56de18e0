#pragma once
// One TCP connection of Liveness: short frames in both directions. Used on the thread of its
// io_context only.
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/ip/tcp.hpp>

namespace coshard {

enum class FrameKind : std::uint8_t { Hello, Refused, Beat, Said, Lost, Bye, Message };

struct Frame {
  FrameKind kind{};
  std::int32_t process = 0;  // the sender of a hello, a saying or a message; or the lost one
  std::string text;
  std::int32_t to = 0, tag = 0;  // of a message
};

class LivenessLink : public std::enable_shared_from_this<LivenessLink> {
 public:
  using Clock = std::chrono::steady_clock;
  using OnFrame = std::function<void(const std::shared_ptr<LivenessLink>&, Frame)>;
  using OnEnd = std::function<void(const std::shared_ptr<LivenessLink>&, const std::string& why)>;
  static constexpr std::size_t kMostText = 64 * 1024;
  static constexpr std::size_t kMostMessage = 4 * 1024 * 1024;
  static constexpr std::size_t kMostOfStranger = 256;

  explicit LivenessLink(boost::asio::ip::tcp::socket socket) : socket_(std::move(socket)) {}
  // `ended` is called once, unless close() was called first; a frame that is too long, or for which
  // `heard` throws, ends the connection.
  void listen(OnFrame heard, OnEnd ended);
  void start();
  void send(const Frame& frame);
  // Unsent data are dropped.
  void close();
  void close_when_sent();
  bool has_sent_all() const { return out_.empty(); }
  void set_timeout(std::chrono::milliseconds unanswered);

  int process = -1;          // the peer, once authenticated
  std::string drawn;         // its nonce, or for a stranger the one sent to it
  bool bye = false;          // it has said goodbye
  bool told_silent = false;  // reported since `heard_at`
  std::string moves;         // how data move there, from its last beat
  Clock::time_point heard_at = Clock::now();

 private:
  struct Header {
    std::uint32_t bytes = 0;
    std::int32_t process = 0;
    std::uint32_t kind = 0;
    std::int32_t to = 0, tag = 0;
  };
  std::size_t most() const;
  void read();
  void tell();  // delivers the frame that was read
  void write();
  void end(const std::string& why);

  boost::asio::ip::tcp::socket socket_;
  OnFrame heard_;
  OnEnd ended_;
  Header header_;
  std::string text_;
  std::deque<std::string> out_;
  bool closing_ = false;
};

}  // namespace coshard
