#pragma once
// Supervises the guards of a job and its launcher: forwards the programs' output and this process's
// signals, records the first failure, then ends the other ranks, and finally reports the cause.
// Runs in one io_context, on its thread; run() returns once the launcher ended and all is written.
#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/control/control_acceptor.h"
#include "runtime/control/failure_record.h"
#include "tools/run/exit_status.h"
#include "tools/run/hosts.h"
#include "tools/run/launcher.h"
#include "tools/run/lines.h"
#include "tools/run/output_writer.h"
#include "tools/run/stdin_forwarder.h"

namespace coshard::job {

class Supervisor {
 public:
  struct Options {
    int ranks = 1;
    std::string token;    // of this job's guards
    std::string program;  // its name
    bool prefix = true;
    std::vector<Host> hosts;                     // empty: all guards are on this machine
    std::chrono::milliseconds start_timeout{0};  // for all guards to connect; 0: no limit
    std::chrono::milliseconds grace{400};        // from SIGTERM to SIGKILL, after a failure
  };
  Supervisor(boost::asio::io_context& io, Options options);
  // Where guards connect.
  const ControlAddress& address() const { return address_; }
  // Error{Unsupported}: it cannot be started.
  void start_launcher(const std::vector<std::string>& command, const Environment& environment);

  int code() const;  // once run() has returned

 private:
  template <class T>
  using Await = boost::asio::awaitable<T>;
  using Guard = std::shared_ptr<ControlLink>;
  using Descriptor = boost::asio::posix::stream_descriptor;
  using Clock = std::chrono::steady_clock;
  struct Rank {
    Lines out, err;
    std::array<int, 2> untaken{};  // unacknowledged messages of each
    int number = 0;
    Guard guard;                          // null: it is not connected
    bool ended = false;                   // its program
    bool drained = false;                 // no more output will arrive
    std::optional<FailureRecord> record;  // why it has failed, if the program has said so
    int recorded = 0;  // the number of that message; 0: by a process that the program has started
    bool came() const { return guard != nullptr || drained; }
  };
  // From the first failure to the end of the job and of its output.
  std::chrono::milliseconds all() const { return std::chrono::milliseconds(2400) + options_.grace; }
  struct Failure {
    int rank = -1;  // -1: the launcher, or this process's output
    ExitStatus exit_status;
    int number = 0;          // of its message, in the order in which all arrived
    bool by_signal = false;  // by one that end_others() has sent
    Clock::time_point at = Clock::now();
  };

  Await<void> expect_guards();
  bool entered(const Guard& guard);
  void received(Rank& rank, const ControlMessage& message);
  void drained(Rank& rank);
  void lost(Rank& rank, const std::string& why);

  void open_stdin();
  void pass_on_input(const std::string& text, int error);
  void fed();

  void make_writers();
  Lines lines_to(int fd, const std::string& prefix);
  void take(Rank& rank);
  void written();
  Await<void> finish();
  Await<void> flush(const OutputWriter& writer);
  bool gives_up(const OutputWriter& writer) const;

  Await<void> show(Descriptor& from, Lines& to);
  bool show_what_is_there(Descriptor& from, Lines& to);
  bool launcher_knows_more() const;
  Await<void> hear_signals();
  void pass_on(int signal);
  Await<void> stop();
  void reap_launcher();

  void failed(Failure failure);
  std::string cause() const;
  const FailureRecord* record_of(const Failure& failure) const;
  Failure cause_of_all() const;
  Await<void> end_others();
  Await<void> end_launcher();
  Await<void> pause(std::chrono::milliseconds time);
  void check_over();
  void send_signal(int signal);

  boost::asio::io_context& io_;
  Options options_;
  ControlAcceptor acceptor_;
  ControlAddress address_;
  boost::asio::signal_set signals_;
  boost::asio::steady_timer pause_, start_, flush_;
  std::shared_ptr<OutputWriter> out_, err_;  // the same one if both are one file, to keep the order
  std::unique_ptr<StdinForwarder> in_;  // of process 0, while it is there and stdin has not ended
  int unfed_ = 0;                       // unacknowledged pieces of it
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::optional<Failure> first_;
  std::vector<Failure> failures_;  // of ranks, first_ too
  int received_ = 0;               // messages and ends so far
  pid_t launcher_ = 0;
  std::string launcher_name_;
  std::optional<ExitStatus> launcher_status_;
  Descriptor launcher_out_, launcher_err_;
  std::unique_ptr<Lines> launcher_says_, launcher_complains_;
  char last_error_byte_ = '\n';  // on stderr
  bool over_ = false, interrupted_ = false, interrupted_twice_ = false, ends_others_ = false,
       ends_launcher_ = false, is_stopping_ = false, told_to_end_ = false;
};

}  // namespace coshard::job
