#include "tools/run/guard.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <sstream>

#include <coshard/runtime/error.h>
#include "runtime/control/control_acceptor.h"
#include "runtime/control/failure_record.h"
#include "runtime/host.h"
#include "tools/run/child.h"
#include "tools/run/exit_status.h"
#include "tools/run/failure_socket.h"
#include "tools/run/orphan_reaper.h"
#include "tools/run/signals.h"
#include "tools/run/standard_streams.h"

namespace coshard::job {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr std::chrono::seconds kGrace{2}, kConnect{20};

class Guard {
 public:
  Guard(asio::io_context& io, std::shared_ptr<ControlLink> run, OrphanReaper& reaper)
      : io_(io),
        run_(std::move(run)),
        streams_{Stream{asio::posix::stream_descriptor(io), MessageKind::Output},
                 Stream{asio::posix::stream_descriptor(io), MessageKind::ErrorOutput}},
        input_(io),
        signals_(io),
        grace_(io),
        reaper_(reaper),
        failures_(io, [this](const std::string& bytes, int pid) { recorded(bytes, pid); }) {}

  int run(const std::vector<std::string>& program, Stdin in) {
    for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2})
      hear(signals_, signal);
    run_->on_sent_all([this] { tell_record(); });
    run_->listen([this](const auto&, const ControlMessage& order) { obey(order); },
                 [this](const auto&, const std::string&) { run_is_gone(); });
    const Child child = start(program, Apart::Group, {{kFailureVariable, failures_.name()}},
                              {kAddressVariable, kTokenVariable}, &reaper_, in);
    if (child.error != 0) {
      reaper_.set(0);
      exit_status_ = {ExitStatus::Kind::NotStarted, child.error};
      tell(MessageKind::Ended, to_word(exit_status_));
      tell(MessageKind::Drained);
    } else {
      pid_ = child.pid;
      watch(streams_[0], child.out);
      watch(streams_[1], child.err);
      if (in == Stdin::Pipe) input_.assign(child.in);
      hear_signals();
    }
    io_.run();
    return exit_status_.code();
  }

 private:
  struct Stream {
    asio::posix::stream_descriptor from;
    MessageKind kind;
    int ahead = 0;  // messages that `coshard run` has not acknowledged
    bool waits = false;
    std::size_t most = std::numeric_limits<std::size_t>::max();  // bytes that may still be read
  };

  void tell(MessageKind kind, std::string text = "") {
    if (!gone_) run_->send({kind, 0, std::move(text)});
  }

  void send_signal(int signal) const {
    if (pid_ > 0) ::kill(-pid_, signal);
  }

  // What the program writes ----------------------------------------------------------------------

  void watch(Stream& stream, int fd) {
    ::fcntl(fd, F_SETFL, O_NONBLOCK);
    stream.from.assign(fd);
    wait_for(stream);
  }
  // Unless too much is unacknowledged: then taken() resumes.
  void wait_for(Stream& stream) {
    const bool full = stream.ahead >= kMostAhead && !gone_;
    if (stream.waits || !stream.from.is_open() || full) return;
    stream.waits = true;
    stream.from.async_wait(asio::posix::descriptor_base::wait_read,
                           [&stream, this](error_code failed) {
                             stream.waits = false;
                             if (failed || has_ended_) return;
                             pass_on(stream);
                             wait_for(stream);
                           });
  }
  // Passes on one piece of the available output; false if there is none.
  bool pass_on(Stream& stream) {
    const std::size_t most = std::min(buffer_.size(), stream.most);
    const ssize_t size = ::read(stream.from.native_handle(), buffer_.data(), most);
    if (size == 0) stream.from.close();
    if (size <= 0) return false;
    stream.most -= static_cast<std::size_t>(size);
    ++stream.ahead;
    tell(stream.kind, std::string(buffer_.data(), static_cast<std::size_t>(size)));
    return true;
  }
  void taken(Stream& stream) {
    --stream.ahead;
    if (has_ended_)
      drain();
    else
      wait_for(stream);
  }

  // The program's output ends with what is in the pipe now: others that hold it may keep writing.
  void drain() {
    bool more = false;
    for (Stream& stream : streams_) {
      while (stream.from.is_open() && stream.ahead < kMostAhead)
        if (!pass_on(stream) && stream.from.is_open()) stream.from.close();
      more = more || stream.from.is_open();
    }
    if (!more && !std::exchange(drained_, true)) tell(MessageKind::Drained);
  }

  // What it reads --------------------------------------------------------------------------------

  void feed(std::string text) {
    unfed_.push_back(std::move(text));
    if (unfed_.size() == 1) feed();
  }
  // A program that has closed its stdin is fed no more.
  void feed() {
    if (!input_.is_open()) return;
    if (unfed_.front().empty()) return stop_feeding();
    asio::async_write(input_, asio::buffer(unfed_.front()), [this](error_code failed, std::size_t) {
      if (failed) return stop_feeding();
      unfed_.pop_front();
      tell(MessageKind::InputTaken);
      if (!unfed_.empty()) feed();
    });
  }
  void stop_feeding() {
    error_code ignored;
    input_.close(ignored);
  }

  // Why it fails ---------------------------------------------------------------------------------

  // The first record counts until who wrote it has recovered, which it tells by no bytes. One that
  // only reports a peer's failure gives way to one of its own; one of a process that the program has
  // started, which may go on, to one of the program.
  void recorded(const std::string& bytes, int pid) {
    const auto record = record_of(std::string_view(bytes));
    const bool own = pid == pid_;
    const bool recovers = bytes.empty() && record_ && pid == recorded_by_;
    const bool counts =
        record && (!record_ || (own && recorded_by_ != pid_) ||
                   (record_->of_peer && !record->of_peer && (own || recorded_by_ != pid_)));
    if (!recovers && !counts) return;
    record_ = record;
    recorded_by_ = pid;
    tell_of_record_ = ControlMessage{MessageKind::Failed, own ? 1 : 0, bytes};
    if (run_->has_sent_all()) tell_record();  // else once it has
  }
  // Of many that replace each other, the last one.
  void tell_record() {
    if (!gone_ && tell_of_record_) run_->send(*tell_of_record_);
    tell_of_record_.reset();
  }

  // How it ends -----------------------------------------------------------------------------------

  void hear_signals() {
    signals_.async_wait([this](error_code failed, int signal) {
      if (failed) return;
      if (signal == SIGCHLD)
        reap();
      else
        send_signal(signal);
      hear_signals();
    });
  }

  void reap() {
    int status = 0;
    if (pid_ == 0 || ::waitpid(pid_, &status, WNOHANG) != pid_) return;
    send_signal(SIGKILL);  // processes that it has left behind
    reaper_.set(0);
    exit_status_ = exit_status_of(status);
    has_ended_ = true;
    stop_feeding();
    failures_.drain();  // before its end is told
    tell_record();
    pid_ = 0;
    tell(MessageKind::Ended, to_word(exit_status_));
    if (gone_) return io_.stop();
    for (Stream& stream : streams_)
      if (stream.from.is_open())
        stream.most = static_cast<std::size_t>(::fcntl(stream.from.native_handle(), F_GETPIPE_SZ));
    drain();
  }

  void obey(const ControlMessage& order) {
    switch (order.kind) {
      case MessageKind::Input: return feed(order.text);
      case MessageKind::OutputTaken: return taken(streams_[0]);
      case MessageKind::ErrorOutputTaken: return taken(streams_[1]);
      case MessageKind::Signal: return send_signal(order.process);
      case MessageKind::Leave: return io_.stop();
      default: fail(ErrorKind::CommFailed, "not an order for a guard");
    }
  }

  // Nobody follows the program any more, so it is ended.
  void run_is_gone() {
    if (std::exchange(gone_, true)) return;
    if (pid_ == 0) return io_.stop();
    send_signal(SIGTERM);
    for (Stream& stream : streams_) wait_for(stream);  // drains its output, which is dropped
    grace_.expires_after(kGrace);
    grace_.async_wait([this](error_code) { send_signal(SIGKILL); });
  }

  asio::io_context& io_;
  std::shared_ptr<ControlLink> run_;
  std::array<Stream, 2> streams_;
  asio::posix::stream_descriptor input_;
  asio::signal_set signals_;
  asio::steady_timer grace_;
  OrphanReaper& reaper_;
  FailureSocket failures_;
  std::optional<FailureRecord> record_;
  int recorded_by_ = 0;                           // pid
  std::optional<ControlMessage> tell_of_record_;  // later: much is unsent
  pid_t pid_ = 0;
  ExitStatus exit_status_;
  bool gone_ = false, has_ended_ = false, drained_ = false;
  std::deque<std::string> unfed_;
  std::array<char, kLongestPiece> buffer_{};
};

}  // namespace

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  CS_REQUIRE(value != nullptr, name, " is not set: only `coshard run` starts this command");
  return value;
}

// "10.0.0.1,10.1.0.1:4242"
ControlAddress address_of(const std::string& text, const std::string& token) {
  const std::size_t colon = text.rfind(':');
  ControlAddress address;
  address.port = static_cast<std::uint16_t>(std::atoi(text.c_str() + colon + 1));
  address.secret = token;
  std::istringstream hosts(text.substr(0, colon));
  for (std::string host; std::getline(hosts, host, ',');) address.hosts.push_back(host);
  return address;
}

int own_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK"})
    if (const char* value = std::getenv(name)) return std::atoi(value);
  fail(ErrorKind::CommFailed, "the launcher does not say which rank this process is");
}

}  // namespace

int guard(std::vector<std::string> words) {
  open_standard_streams();
  ignore_sigpipe();
  for (std::string& word : words) word.erase(0, 1);
  const ControlAddress address = address_of(variable(kAddressVariable), variable(kTokenVariable));
  const int rank = own_rank();
  OrphanReaper reaper;
  asio::io_context io(1);
  const auto run =
      connect_control(io, rank, address, kConnect,
                      {str_cat("rank ", rank, " on ", host_name(), " cannot reach `coshard run`"),
                       false, kTokenVariable});
  return Guard(io, run, reaper).run(words, rank == 0 ? Stdin::Pipe : Stdin::Empty);
}

}  // namespace coshard::job
