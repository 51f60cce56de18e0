#include "runtime/launch/store.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include <coshard/runtime/error.h>

namespace coshard {
namespace {

Store* current = nullptr;

std::uint16_t port_of(const Launched& launched, const Environment& environment) {
  const auto own = environment("COSHARD_PORT");
  const std::string text = own.value_or(launched.master_port);
  const std::string name = own ? "COSHARD_PORT" : "MASTER_PORT";
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  const int most = own ? 65535 : 65534;
  CS_REQUIRE(error == std::errc{} && end == text.data() + text.size() && port >= 1 && port <= most,
             name, "=", text, " is not a port from 1 to ", most);
  return static_cast<std::uint16_t>(own ? port : port + 1);
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

}  // namespace

MeetingPoint meeting_point(const Launched& launched, const Environment& environment) {
  const bool here =
      launched.local_processes == launched.processes || is_loopback(launched.master_addr);
  MeetingPoint where;
  where.beyond = !here;
  where.address.hosts = {here ? "127.0.0.1" : launched.master_addr};
  where.address.port = port_of(launched, environment);
  const std::string token = environment("COSHARD_TOKEN").value_or("");
  // Without a token, at least keeps apart jobs that share a port by mistake.
  where.address.secret = token.empty() ? str_cat("port ", launched.master_port, " of ",
                                                 launched.processes, " processes")
                                       : token;
  CS_REQUIRE(here || !token.empty(), launched.said,
             " on several hosts (MASTER_ADDR=", launched.master_addr,
             ") without COSHARD_TOKEN: set it to the same secret in every process, or start "
             "them with mpirun or srun");
  return where;
}

Store::Store(const Launched& launched, const MeetingPoint& where,
             std::chrono::milliseconds deadline)
    : process_(launched.process), processes_(launched.processes) {
  constexpr std::chrono::milliseconds kPortTaken(5000), kNoDeadline(60'000);
  const auto most = deadline > std::chrono::milliseconds(0) ? deadline : kNoDeadline;
  CS_REQUIRE(current == nullptr, "this process has already joined a job");
  if (process_ == 0)
    liveness_ = std::make_shared<Liveness>(processes_, where.address, where.beyond,
                                           std::min(most, kPortTaken));
  else
    liveness_ = std::make_shared<Liveness>(process_, processes_, where.address, most);
  liveness_->on_message([this](int from, int tag, std::string message) {
    arrived({from, tag}, std::move(message));
  });
  current = this;
}

Store::~Store() {
  liveness_->on_message(nullptr);
  current = nullptr;
}

void Store::arrived(Key from, std::string message) {
  const std::scoped_lock lock(mutex_);
  const auto found = receives_.find(from);
  if (found == receives_.end()) return messages_.push_back({from, std::move(message)});
  complete(found->second.front(), message);
  found->second.pop_front();
  if (found->second.empty()) receives_.erase(found);
}

void Store::post(Key from, Receive receive) {
  const std::scoped_lock lock(mutex_);
  const auto found = std::ranges::find(messages_, from, &Message::key);
  if (found == messages_.end()) return receives_[from].push_back(receive);
  complete(receive, found->data);
  messages_.erase(found);
}

void Store::complete(const Receive& receive, const std::string& message) {
  const std::size_t bytes = std::min(receive.bytes, message.size());
  if (bytes > 0) std::memcpy(receive.data, message.data(), bytes);
  done_.push_back({receive.cookie, bytes});
}

void Store::send(int to, int tag, std::string message, std::uint64_t cookie) {
  liveness_->send_message(to, tag, std::move(message));
  const std::scoped_lock lock(mutex_);
  done_.push_back({cookie, 0});
}

void Store::poll(const MpiDone** done, int* count) {
  const std::scoped_lock lock(mutex_);
  told_.swap(done_);
  done_.clear();
  *done = told_.data();
  *count = static_cast<int>(told_.size());
}

void Store::cancel(std::uint64_t cookie) {
  const std::scoped_lock lock(mutex_);
  for (auto& [from, receives] : receives_)
    if (std::erase_if(receives, [&](const Receive& r) { return r.cookie == cookie; }) > 0)
      done_.push_back({cookie, 0});
  std::erase_if(receives_, [](const auto& one) { return one.second.empty(); });
}

void Store::probe(int from, int* tag, std::size_t* bytes) {
  const std::scoped_lock lock(mutex_);
  const auto found =
      std::ranges::find(messages_, from, [](const Message& m) { return m.key.first; });
  *tag = found == messages_.end() ? -1 : found->key.second;
  if (*tag >= 0) *bytes = found->data.size();
}

struct Store::Calls {
  static const char* start(MpiPlace* place) {
    *place = {current->process_, current->processes_, 1 << 30};
    return nullptr;
  }
  static const char* send(const void* data, std::size_t bytes, int to, int tag,
                          std::uint64_t cookie) {
    current->send(to, tag, {static_cast<const char*>(data), bytes}, cookie);
    return nullptr;
  }
  static const char* receive(void* data, std::size_t bytes, int from, int tag,
                             std::uint64_t cookie) {
    current->post({from, tag}, {static_cast<char*>(data), bytes, cookie});
    return nullptr;
  }
  static const char* poll(const MpiDone** done, int* count) {
    current->poll(done, count);
    return nullptr;
  }
  static const char* cancel(std::uint64_t cookie) {
    current->cancel(cookie);
    return nullptr;
  }
  static const char* probe(int from, int* tag, std::size_t* bytes) {
    current->probe(from, tag, bytes);
    return nullptr;
  }
};

const MpiApi& Store::api() {
  static constexpr const char* kName = "the store of process 0";
  static constexpr MpiApi table = {kMpiApiVersion,
                                   kName,
                                   [] { return kName; },
                                   Calls::start,
                                   []() -> const char* { return nullptr; },
                                   [] {},
                                   [](int code) { std::_Exit(code); },
                                   Calls::send,
                                   Calls::receive,
                                   Calls::poll,
                                   Calls::cancel,
                                   Calls::probe,
                                   [](MpiPlace*) { return false; },
                                   nullptr};
  return table;
}

}  // namespace coshard
