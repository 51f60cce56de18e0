#include "tools/run/guard.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <csignal>
#include <cstdlib>
#include <iostream>

#include <coshard/runtime/error.h>
#include "tools/run/child.h"
#include "tools/run/ending.h"
#include "tools/run/guard_door.h"
#include "tools/run/message.h"
#include "tools/run/signals.h"

namespace coshard::job {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr std::chrono::seconds kGrace{2}, kConnect{20};

class Guard {
 public:
  Guard(asio::io_context& io, asio::ip::tcp::socket run)
      : io_(io), run_(std::move(run)), out_(io), err_(io), signals_(io), grace_(io) {}

  int run(const std::vector<std::string>& program) {
    for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2})
      hear(signals_, signal);
    hear_run();
    const Child child = start(program, Apart::Group, {}, {kAddressVariable, kTokenVariable});
    if (child.error != 0) {
      ending_ = {Ending::Kind::NotStarted, child.error};
      tell(MessageKind::Ended, to_word(ending_));
      tell(MessageKind::Drained);
    } else {
      pid_ = child.pid;
      watch(out_, child.out, MessageKind::Out);
      watch(err_, child.err, MessageKind::Err);
      hear_signals();
    }
    io_.run();
    return ending_.code();
  }

 private:
  void tell(MessageKind kind, std::string_view text = "") {
    const MessageHeader header = header_of(kind, text.size());
    send_all(asio::buffer(header));
    send_all(asio::buffer(text));
  }
  // A signal interrupts the wait for a slow reader; the rest is sent all the same.
  void send_all(asio::const_buffer rest) {
    while (rest.size() > 0 && !gone_) {
      error_code failed;
      rest += asio::write(run_, rest, failed);
      if (failed && failed != asio::error::interrupted) run_is_gone();
    }
  }

  void send_signal(int signal) const {
    if (pid_ > 0) ::kill(-pid_, signal);
  }

  void watch(asio::posix::stream_descriptor& from, int fd, MessageKind kind) {
    ::fcntl(fd, F_SETFL, O_NONBLOCK);
    from.assign(fd);
    wait_for(from, kind);
  }
  void wait_for(asio::posix::stream_descriptor& from, MessageKind kind) {
    from.async_wait(asio::posix::descriptor_base::wait_read,
                    [&from, kind, this](error_code failed) {
                      if (!failed && pass_on(from, kind)) wait_for(from, kind);
                    });
  }
  // One piece of what is there; false: there is no more to come.
  bool pass_on(asio::posix::stream_descriptor& from, MessageKind kind) {
    if (!from.is_open()) return false;
    const ssize_t size = ::read(from.native_handle(), buffer_.data(), buffer_.size());
    if (size > 0) tell(kind, {buffer_.data(), static_cast<std::size_t>(size)});
    if (size == 0) from.close();
    more_ = size > 0;
    return size != 0;
  }

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
    send_signal(SIGKILL);  // what it has started and left
    pid_ = 0;
    ending_ = ending_of(status);
    tell(MessageKind::Ended, to_word(ending_));
    drain(out_, MessageKind::Out);
    drain(err_, MessageKind::Err);
    tell(MessageKind::Drained);
    if (gone_) io_.stop();
  }
  void drain(asio::posix::stream_descriptor& from, MessageKind kind) {
    do more_ = false;
    while (pass_on(from, kind) && more_);
  }

  void hear_run() {
    run_.async_read_some(asio::buffer(heard_), [this](error_code failed, std::size_t size) {
      if (failed) return run_is_gone();
      for (std::size_t i = 0; i < size; ++i) {
        if (heard_[i] == kLeave) return io_.stop();
        send_signal(heard_[i]);
      }
      hear_run();
    });
  }

  // Nobody hears how the program ends, so it has to.
  void run_is_gone() {
    if (std::exchange(gone_, true)) return;
    if (pid_ == 0) return io_.stop();
    send_signal(SIGTERM);
    grace_.expires_after(kGrace);
    grace_.async_wait([this](error_code) { send_signal(SIGKILL); });
  }

  asio::io_context& io_;
  asio::ip::tcp::socket run_;
  asio::posix::stream_descriptor out_, err_;
  asio::signal_set signals_;
  asio::steady_timer grace_;
  pid_t pid_ = 0;
  Ending ending_;
  bool gone_ = false, more_ = false;
  std::array<char, kLongestMessage> buffer_{};
  std::array<unsigned char, 64> heard_{};
};

}  // namespace

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  CS_REQUIRE(value != nullptr, name, " is not set: only `coshard run` starts this command");
  return value;
}

int own_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK"})
    if (const char* value = std::getenv(name)) return std::atoi(value);
  fail(ErrorKind::CommFailed, "the launcher does not say which rank this process is");
}

}  // namespace

int guard(std::vector<std::string> words) {
  for (std::string& word : words) word.erase(0, 1);
  const std::string addresses = variable(kAddressVariable), token = variable(kTokenVariable);
  asio::io_context io(1);
  asio::ip::tcp::socket run = connect_to_run(io, addresses, token, own_rank(), kConnect);
  ::fcntl(run.native_handle(), F_SETFD, FD_CLOEXEC);  // not the program's
  return Guard(io, std::move(run)).run(words);
}

}  // namespace coshard::job
