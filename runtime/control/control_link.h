#pragma once
// One TCP connection of the control channel of a job: short messages in both directions. Used on
// the thread of its io_context only.
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/ip/tcp.hpp>

namespace coshard {

enum class MessageKind : std::uint8_t {
  // Both ends, to prove that they belong to the job (control_acceptor.h).
  Hello,
  Refused,
  // Between a process of a job and process 0 (liveness.h).
  Beat,
  Said,
  Lost,
  Bye,
  Relayed,  // from one process to another
  // From the guard of a rank to `coshard run` (tools/run/guard.h).
  Output,       // of the program's stdout
  ErrorOutput,  // and its stderr
  InputTaken,   // a piece of stdin has been written to the program
  Failed,       // a failure_record.h; process: 1 if the program wrote it itself
  Ended,        // how the program ended, to_word(ExitStatus)
  Drained,      // all of its output has been sent
  // From `coshard run` to a guard.
  Input,             // a piece of the program's stdin; empty: its end
  OutputTaken,       // one piece of Output may follow
  ErrorOutputTaken,  // one of ErrorOutput
  Signal,            // `process`: its number
  Leave,             // to exit
};
constexpr MessageKind kLastMessageKind = MessageKind::Leave;

struct ControlMessage {
  MessageKind kind{};
  std::int32_t process = 0;  // the sender of Hello, Said or Relayed; or the lost one
  std::string text;
  std::int32_t to = 0, tag = 0;  // of Relayed
};

class ControlLink : public std::enable_shared_from_this<ControlLink> {
 public:
  using Clock = std::chrono::steady_clock;
  using OnMessage = std::function<void(const std::shared_ptr<ControlLink>&, ControlMessage)>;
  using OnEnd = std::function<void(const std::shared_ptr<ControlLink>&, const std::string& why)>;
  static constexpr std::size_t kMostText = 64 * 1024;
  static constexpr std::size_t kMostRelayed = 4 * 1024 * 1024;
  static constexpr std::size_t kMostOfStranger = 256;

  explicit ControlLink(boost::asio::ip::tcp::socket socket) : socket_(std::move(socket)) {}
  // `ended` is called once, unless close() was called first; a message that is too long, or for
  // which `received` throws, ends the connection.
  void listen(OnMessage received, OnEnd ended);
  // The peer's kernel must answer within a minute, or what set_timeout() says.
  void start();
  void send(const ControlMessage& message);
  // Unsent data are dropped.
  void close();
  void close_when_sent();
  bool has_sent_all() const { return out_.empty() && sending_.empty(); }
  void set_timeout(std::chrono::milliseconds unanswered);
  // Called whenever nothing is unsent any more; null: nothing.
  void on_sent_all(std::function<void()> called) { sent_all_ = std::move(called); }

  int process = -1;          // the peer, once authenticated
  std::string nonce;         // its nonce, or for a stranger the one sent to it
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
  void deliver();
  void write();
  void end(const std::string& why);

  boost::asio::ip::tcp::socket socket_;
  OnMessage received_;
  OnEnd ended_;
  std::function<void()> sent_all_;
  Header header_;
  std::string text_;
  std::string out_, sending_;  // unsent; the latter is being sent
  bool closing_ = false;
};

}  // namespace coshard
