#include "runtime/control/liveness.h"

#include <pthread.h>

#include <algorithm>
#include <deque>
#include <future>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <boost/asio/dispatch.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <coshard/runtime/error.h>
#include "runtime/control/control_acceptor.h"
#include "runtime/control/control_link.h"
#include "runtime/control/proof.h"
#include "runtime/control/watched_process.h"
#include "runtime/start_thread.h"

namespace coshard {
namespace {

namespace asio = boost::asio;
using std::chrono::milliseconds;
using Clock = ControlLink::Clock;
using LinkPtr = std::shared_ptr<ControlLink>;
using WatchedPtr = std::shared_ptr<WatchedProcess>;

constexpr const char* kSlowly = "1";  // in a beat: how data move
constexpr const char* kSteadily = "2";

}  // namespace

class Liveness::Hub {
 public:
  Hub(int process, int processes) : process_(process), lost_(static_cast<std::size_t>(processes)) {
    for (int p = 1; process == 0 && p < processes; ++p) missing_.insert(p);
  }

  void open(ControlAddress address, bool beyond, milliseconds deadline) {
    address_ = acceptor_.open(std::move(address), beyond, deadline);
    begin();
  }

  void join(const ControlAddress& address, milliseconds deadline) {
    address_ = address;
    const LinkPtr link =
        connect_control(io_, process_, address, deadline,
                        {str_cat("process ", process_, " cannot connect to process 0")});
    serve(link);
    begin();
  }

  void end() {
    asio::post(io_, [this] {
      hooks_ = {};
      on_message_ = nullptr;
      acceptor_.close();
      for (const auto& watched : watched_) watched->end();
      for (const auto& [process, link] : links_) link->send({MessageKind::Bye, process_, ""});
      close_when_sent(Clock::now() + milliseconds(500));
    });
    work_.reset();
    if (thread_.joinable()) thread_.join();
  }

  // Runs `f` on the hub's thread; returns when it is done.
  template <class F>
  void run(const F& f) {
    if (io_.get_executor().running_in_this_thread()) return f();
    std::promise<void> done;
    asio::post(io_, [&] {
      f();
      done.set_value();
    });
    done.get_future().wait();
  }
  template <class F>
  void later(F f) {
    asio::dispatch(io_, std::move(f));
  }

  const ControlAddress& address() const { return address_; }
  int process() const { return process_; }

  void listen(Hooks hooks) {
    hooks_ = std::move(hooks);
    if (hooks_.lost)
      for (std::size_t p = 0; p < lost_.size(); ++p)
        if (lost_[p]) hooks_.lost(static_cast<int>(p), *lost_[p]);
    if (hooks_.said)
      for (const auto& [from, text] : std::exchange(unheard_, {})) hooks_.said(from, text);
  }

  // Process 0 determines the order: it sends to all, including the process that said it.
  void say(const std::string& text) {
    if (process_ == 0) return pass_on({MessageKind::Said, 0, text});
    const auto hub = links_.find(0);
    if (hub == links_.end()) return heard_said(process_, text);
    hub->second->send({MessageKind::Said, process_, text});
    unreturned_.push_back(text);
  }

  // To the receiver, relayed by process 0. Dropped if the receiver is lost or has left.
  void send_message(ControlMessage message) {
    if (message.to == process_) {
      if (on_message_) return on_message_(message.process, message.tag, std::move(message.text));
      if (keeps_messages_) early_.push_back(std::move(message));
      return;
    }
    const auto to = links_.find(process_ == 0 ? message.to : 0);
    if (to != links_.end()) to->second->send(message);
  }
  void on_message(std::function<void(int, int, std::string)> told) {
    on_message_ = std::move(told);
    keeps_messages_ = false;
    for (ControlMessage& message : std::exchange(early_, {}))
      on_message_(message.process, message.tag, std::move(message.text));
  }

  void set_deadline(milliseconds deadline) {
    deadline_ = deadline;
    for (const auto& [process, link] : links_) set_timeout(*link);
    beaten_at_ = Clock::now();
    beat();
  }

  void watch(int process, int pid) {
    const auto watched = std::make_shared<WatchedProcess>(io_, process);
    if (watched->on_end(pid, [this, watched] { died(watched); })) watched_.push_back(watched);
  }

  std::vector<int> lost() const {
    std::vector<int> all;
    for (std::size_t p = 0; p < lost_.size(); ++p)
      if (lost_[p]) all.push_back(static_cast<int>(p));
    return all;
  }

 private:
  void begin() {
    beat();
    thread_ = start_thread([this] {
      pthread_setname_np(pthread_self(), "liveness");
      io_.run();
    });
  }

  // The process has ended. Its goodbye or the end of its connection is usually about to arrive and
  // gets a little time; it may also never have connected.
  void died(const WatchedPtr& watched) {
    constexpr int kLooks = 3;
    const auto found = links_.find(watched->process);
    const LinkPtr link = found != links_.end() ? found->second : nullptr;
    if (link == nullptr && process_ != 0) {  // process 0 has its connection
      const auto zero = links_.find(0);
      if (zero != links_.end()) zero->second->send({MessageKind::Lost, watched->process, ""});
      return;
    }
    if (link != nullptr ? link->bye : !missing_.contains(watched->process)) return;
    const Clock::time_point heard_at = link != nullptr ? link->heard_at : Clock::time_point();
    if (std::exchange(watched->heard_at, heard_at) != heard_at) watched->looks = 0;
    if (++watched->looks > kLooks) {
      if (link == nullptr) return lose(watched->process, "it has ended");
      link->close();
      return ended(link, "it has ended");
    }
    watched->timer.expires_after(milliseconds(50));
    watched->timer.async_wait([this, watched](const boost::system::error_code& error) {
      if (!error) died(watched);
    });
  }

  void serve(const LinkPtr& link) {
    link->listen(
        [this](const LinkPtr& from, ControlMessage message) { heard(from, std::move(message)); },
        [this](const LinkPtr& from, const std::string& why) { ended(from, why); });
    set_timeout(*link);
    links_[link->process] = link;
  }

  // Process 0 only.
  bool entered(const LinkPtr& from) {
    const int p = from->process;
    if (p < 1 || p >= static_cast<int>(lost_.size()) || links_.contains(p) || lost_[place(p)])
      return false;
    // Replays what it has missed.
    for (const int other : lost()) from->send({MessageKind::Lost, other, *lost_[place(other)]});
    for (const ControlMessage& said : said_) from->send(said);
    serve(from);
    if (missing_.erase(p); missing_.empty()) said_.clear();
    return true;
  }

  void heard(const LinkPtr& from, ControlMessage message) {
    switch (message.kind) {
      case MessageKind::Hello:
      case MessageKind::Refused: return;
      case MessageKind::Beat:
        if (process_ != 0) return tell_who_may_wait(message.text);
        from->moves = message.text;
        return;
      case MessageKind::Said:
        if (process_ == 0)
          return pass_on({MessageKind::Said, from->process, std::move(message.text)});
        if (message.process == process_ && !unreturned_.empty()) unreturned_.pop_front();
        return heard_said(message.process, message.text);
      case MessageKind::Lost:
        if (message.process < 0 || message.process >= static_cast<int>(lost_.size()) ||
            message.process == process_)
          fail(ErrorKind::CommFailed, "nonsense");
        if (process_ != 0) return note_lost(message.process, message.text);
        watched_.push_back(std::make_shared<WatchedProcess>(io_, message.process));
        return died(watched_.back());
      case MessageKind::Bye: from->bye = true; return;
      case MessageKind::Relayed:
        if (process_ == 0) message.process = from->process;
        return send_message(std::move(message));
      default: fail(ErrorKind::CommFailed, "nonsense");
    }
  }

  void ended(const LinkPtr& from, const std::string& why) {
    links_.erase(from->process);
    if (!from->bye) return lose(from->process, why);
    if (process_ == 0) return;
    // Process 0 has left, perhaps before it read these.
    for (const std::string& text : std::exchange(unreturned_, {})) heard_said(process_, text);
  }

  void lose(int lost, const std::string& why) {
    if (process_ == 0)
      for (const auto& [process, link] : links_) link->send({MessageKind::Lost, lost, why});
    note_lost(lost, why);
  }

  void pass_on(const ControlMessage& said) {
    for (const auto& [process, link] : links_) link->send(said);
    if (!missing_.empty()) said_.push_back(said);
    heard_said(said.process, said.text);
  }

  void heard_said(int from, const std::string& text) {
    if (hooks_.said) return hooks_.said(from, text);
    unheard_.emplace_back(from, text);
  }

  void note_lost(int process, const std::string& why) {
    auto& known = lost_[place(process)];
    if (known || process == process_) return;
    known = why;
    if (hooks_.lost) hooks_.lost(process, why);
  }

  milliseconds interval() const {
    if (deadline_ == milliseconds(0)) return milliseconds(1000);
    return std::clamp(deadline_ / 16, milliseconds(20), milliseconds(1000));
  }

  void beat() {
    const Clock::time_point now = Clock::now();
    const bool was_away = now - beaten_at_ > 4 * interval();  // this process itself was stopped
    beaten_at_ = now;
    const std::string news = process_ == 0 ? who_may_wait(now) : moves();
    std::vector<LinkPtr> silent;
    for (const auto& [process, link] : links_) {
      link->send({MessageKind::Beat, process_, news});
      if (was_away) link->heard_at = now;
      const auto since = std::chrono::duration_cast<milliseconds>(now - link->heard_at);
      if (deadline_ == milliseconds(0) || since < deadline_ / 4) continue;
      // Waits with a deadline end by themselves; this ends those without one.
      if (since > deadline_ + deadline_ / 4) silent.push_back(link);
      if (std::exchange(link->told_silent, true)) continue;
      if (hooks_.silent) hooks_.silent(process, since);
    }
    for (const LinkPtr& link : silent) {
      link->close();
      const auto tenths = (now - link->heard_at) / milliseconds(100);
      ended(link, str_cat("it has been silent for ", static_cast<double>(tenths) / 10, " s"));
    }
    timer_.expires_after(interval());
    timer_.async_wait([this](const boost::system::error_code& error) {
      if (!error) beat();
    });
  }

  std::string moves() const {
    if (hooks_.moves_slowly && hooks_.moves_slowly()) return kSlowly;
    return hooks_.moves_steadily && hooks_.moves_steadily() ? kSteadily : "";
  }

  // Computed by process 0, which hears all beats. One digit per process, "1101"; "": none.
  std::string who_may_wait(Clock::time_point now) const {
    const std::string none(lost_.size(), '0'), own = moves();
    std::string alive = none, steady = none;
    alive[0] = '1';
    if (!own.empty()) steady[0] = '1';
    bool slowly = own == kSlowly;
    for (const auto& [process, link] : links_) {
      if (now - link->heard_at > deadline_ / 2) continue;
      alive[place(process)] = '1';
      if (!link->moves.empty()) steady[place(process)] = '1';
      slowly |= link->moves == kSlowly;
    }
    const std::string& who = slowly ? alive : steady;
    if (who == none) return "";
    tell_who_may_wait(who);
    return who;
  }
  void tell_who_may_wait(const std::string& who) const {
    for (std::size_t p = 0; p < who.size() && hooks_.may_wait; ++p)
      if (who[p] == '1') hooks_.may_wait(static_cast<int>(p));
  }

  void set_timeout(ControlLink& link) const {
    link.set_timeout(deadline_ == milliseconds(0) ? milliseconds(60'000) : deadline_ * 3 / 4);
  }

  void close_when_sent(Clock::time_point latest) {
    const bool sent =
        std::ranges::all_of(links_, [](const auto& one) { return one.second->has_sent_all(); });
    if (!sent && Clock::now() < latest) {
      timer_.expires_after(milliseconds(1));
      return timer_.async_wait(
          [this, latest](const boost::system::error_code&) { close_when_sent(latest); });
    }
    timer_.cancel();
    for (const auto& [process, link] : links_) link->close();
    links_.clear();
  }

  static std::size_t place(int process) { return static_cast<std::size_t>(process); }

  int process_;
  ControlAddress address_;
  std::function<void(int, int, std::string)> on_message_;
  bool keeps_messages_ = true;  // until the first on_message()
  std::vector<ControlMessage> early_;
  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_ = asio::make_work_guard(io_);
  ControlAcceptor acceptor_{io_, "process 0",
                            [this](const LinkPtr& from) { return entered(from); }};
  asio::steady_timer timer_{io_};
  Clock::time_point beaten_at_ = Clock::now();
  milliseconds deadline_{0};
  Hooks hooks_;
  std::vector<WatchedPtr> watched_;
  std::map<int, LinkPtr> links_;  // process 0: to all others; else: to process 0
  std::vector<std::pair<int, std::string>> unheard_;
  std::deque<std::string> unreturned_;  // said by this process, and not yet passed on to it
  std::vector<std::optional<std::string>> lost_;  // by process: why
  std::set<int> missing_;                         // process 0: have not connected yet
  std::vector<ControlMessage> said_;              // process 0: for those in missing_
  std::thread thread_;
};

Liveness::Liveness(int processes, bool beyond) : hub_(std::make_unique<Hub>(0, processes)) {
  hub_->open({{}, 0, random_nonce() + random_nonce()}, beyond, milliseconds(0));
}

Liveness::Liveness(int processes, const ControlAddress& address, bool beyond, milliseconds deadline)
    : hub_(std::make_unique<Hub>(0, processes)) {
  hub_->open(address, beyond, deadline);
}

Liveness::Liveness(int process, int processes, const ControlAddress& address, milliseconds deadline)
    : hub_(std::make_unique<Hub>(process, processes)) {
  hub_->join(address, deadline);
}

Liveness::~Liveness() { hub_->end(); }

const ControlAddress& Liveness::address() const { return hub_->address(); }

void Liveness::listen(Hooks hooks) {
  hub_->run([&] { hub_->listen(std::move(hooks)); });
}

void Liveness::say(const std::string& text) {
  hub_->later([hub = hub_.get(), text] { hub->say(text); });
}

void Liveness::send_message(int to, int tag, std::string bytes) {
  hub_->later([hub = hub_.get(), to, tag, bytes = std::move(bytes)]() mutable {
    hub->send_message({MessageKind::Relayed, hub->process(), std::move(bytes), to, tag});
  });
}

void Liveness::on_message(std::function<void(int, int, std::string)> told) {
  hub_->run([&] { hub_->on_message(std::move(told)); });
}

void Liveness::set_deadline(milliseconds deadline) {
  hub_->run([&] { hub_->set_deadline(deadline); });
}

void Liveness::watch(int process, int pid) {
  hub_->run([&] { hub_->watch(process, pid); });
}

std::vector<int> Liveness::lost() const {
  std::vector<int> all;
  hub_->run([&] { all = hub_->lost(); });
  return all;
}

}  // namespace coshard
