#include "runtime/launch/simulated_mpi.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <coshard/runtime/error.h>

namespace coshard {
namespace {

constexpr std::size_t kEager = 4096;
constexpr int kMostTag = 100;
SimulatedMpi* of_all_threads = nullptr;
thread_local SimulatedMpi* of_this_thread = nullptr;

SimulatedMpi& network() { return of_this_thread != nullptr ? *of_this_thread : *of_all_threads; }

}  // namespace

struct SimulatedCalls {
  template <int process>
  static const MpiApi& api() {
    static const MpiApi table = {
        kMpiApiVersion,
        "simulated MPI",
        [] { return "simulated MPI 1"; },
        [](MpiPlace* place) -> const char* {
          *place = {process, static_cast<int>(network().processes_.size()), kMostTag};
          return nullptr;
        },
        []() -> const char* { return nullptr; },
        [] {},
        [](int) {},
        [](const void* data, std::size_t bytes, int to, int tag, std::uint64_t cookie) {
          return network().send(process, data, bytes, to, tag, cookie);
        },
        [](void* data, std::size_t bytes, int from, int tag, std::uint64_t cookie) {
          return network().receive(process, data, bytes, from, tag, cookie);
        },
        [](const MpiDone** done, int* count) { return network().poll(process, done, count); },
        [](std::uint64_t cookie) { return network().cancel(process, cookie); },
        [](int from, int* tag, std::size_t* bytes) {
          return network().probe(process, from, tag, bytes);
        },
        [](MpiPlace* place) {
          *place = {process, static_cast<int>(network().processes_.size()), kMostTag};
          return true;
        },
        nullptr};
    return table;
  }
  template <int... process>
  static const MpiApi& at(int wanted, std::integer_sequence<int, process...>) {
    const std::array<const MpiApi*, sizeof...(process)> all = {&api<process>()...};
    return *all[static_cast<std::size_t>(wanted)];
  }
};

SimulatedMpi::SimulatedMpi(SimulatedMpiOptions options)
    : options_(std::move(options)),
      slowest_(static_cast<std::uint64_t>(std::max<std::int64_t>(1, options_.slowest))),
      draw_(options_.seed),
      processes_(static_cast<std::size_t>(options_.processes)) {
  (options_.now ? of_this_thread : of_all_threads) = this;
  for (const auto& [process, after] : options_.deaths)
    if (after == 0) count_sent(process);
}

SimulatedMpi::~SimulatedMpi() { (options_.now ? of_this_thread : of_all_threads) = nullptr; }

const MpiApi& SimulatedMpi::api(int process) const {
  return SimulatedCalls::at(process, std::make_integer_sequence<int, kMostProcesses>());
}

void SimulatedMpi::kill(int process) {
  const std::scoped_lock lock(mutex_);
  of(process).dead = true;
}

bool SimulatedMpi::dead(int process) {
  const std::scoped_lock lock(mutex_);
  return of(process).dead;
}

SimulatedMpi::Sent SimulatedMpi::sent(int process) {
  const std::scoped_lock lock(mutex_);
  return of(process).sent;
}

std::size_t SimulatedMpi::unmatched() {
  const std::scoped_lock lock(mutex_);
  return messages_.size();
}

bool SimulatedMpi::is_lost(const Stream& stream) {
  if (!broken_.contains(stream) && !draw_.happens(options_.lost)) return false;
  broken_.insert(stream);
  return true;
}

// The sender may reuse the memory; the message arrives no earlier than those before it in its
// stream.
void SimulatedMpi::leave(Message& message) {
  const auto [from, to, tag] = message.stream;
  message.copy.assign(message.data, message.data + message.bytes);
  message.left = true;
  std::int64_t& latest = latest_[message.stream];
  message.arrives = latest = std::max(latest, delayed());
  of(from).done.push_back({message.cookie, 0});
  due(from, now());
  due(to, message.arrives);
}

void SimulatedMpi::count_sent(int process) {
  const auto death = options_.deaths.find(process);
  if (death == options_.deaths.end() || of(process).sent.messages < death->second) return;
  of(process).dead = true;
  if (options_.died) options_.died(process);
}

const char* SimulatedMpi::send(int from, const void* data, std::size_t bytes, int to, int tag,
                               std::uint64_t cookie) {
  const std::scoped_lock lock(mutex_);
  if (of(from).dead) return nullptr;
  const Stream stream{from, to, tag};
  const bool lost = is_lost(stream), at_once = bytes <= kEager;
  if (options_.sent)
    options_.sent(from, str_cat(lost ? "loses " : "sends ", bytes, " bytes to process ", to));
  if (!lost) {
    Message& m = messages_.emplace_back();
    m.stream = stream, m.bytes = bytes, m.cookie = cookie;
    m.data = static_cast<const std::byte*>(data);
    m.arrives = delayed();  // for a long message: its announcement
    if (at_once)
      leave(m);
    else
      due(to, m.arrives);
  } else if (at_once) {
    of(from).done.push_back({cookie, 0});
    due(from, now());
  }
  ++of(from).sent.messages;
  of(from).sent.bytes += static_cast<std::int64_t>(bytes);
  count_sent(from);
  return nullptr;
}

const char* SimulatedMpi::receive(int to, void* data, std::size_t bytes, int from, int tag,
                                  std::uint64_t cookie) {
  const std::scoped_lock lock(mutex_);
  of(to).receives.push_back({Stream(from, to, tag), static_cast<std::byte*>(data), bytes, cookie});
  due(to, now());
  return nullptr;
}

// Delivers the oldest matching message, if it has arrived.
bool SimulatedMpi::deliver(const Receive& receive) {
  const auto m = std::ranges::find(messages_, receive.stream, &Message::stream);
  if (m == messages_.end() || m->arrives > now()) return false;
  const auto [from, to, tag] = m->stream;
  if (!m->left) {
    if (!std::exchange(m->wanted, true)) due(from, delayed());
    return false;
  }
  if (m->bytes > 0) std::memcpy(receive.data, m->copy.data(), std::min(m->bytes, receive.bytes));
  of(to).done.push_back({receive.cookie, m->bytes});
  messages_.erase(m);
  return true;
}

void SimulatedMpi::tell(Process& process) {
  process.told = std::exchange(process.done, {});
  for (std::size_t i = process.told.size(); i > 1; --i)
    std::swap(process.told[i - 1], process.told[draw_(i)]);
}

const char* SimulatedMpi::poll(int process, const MpiDone** done, int* count) {
  const std::scoped_lock lock(mutex_);
  ++polls_;
  Process& mine = of(process);
  *count = 0;
  if (mine.dead) return nullptr;
  for (Message& m : messages_)
    if (m.wanted && !m.left && std::get<0>(m.stream) == process) leave(m);
  // Receives of equal source and tag match in posting order: a later one must not overtake.
  std::set<Stream> waiting;
  for (auto r = mine.receives.begin(); r != mine.receives.end();) {
    if (!waiting.contains(r->stream) && deliver(*r)) {
      r = mine.receives.erase(r);
    } else {
      waiting.insert(r->stream);
      ++r;
    }
  }
  tell(mine);
  *done = mine.told.data();
  *count = static_cast<int>(mine.told.size());
  return nullptr;
}

const char* SimulatedMpi::cancel(int process, std::uint64_t cookie) {
  const std::scoped_lock lock(mutex_);
  if (std::erase_if(of(process).receives,
                    [cookie](const Receive& receive) { return receive.cookie == cookie; }) > 0) {
    of(process).done.push_back({cookie, 0});
    due(process, now());
  }
  return nullptr;
}

const char* SimulatedMpi::probe(int process, int from, int* tag, std::size_t* bytes) {
  const std::scoped_lock lock(mutex_);
  ++polls_;
  *tag = -1;
  std::map<Stream, std::int64_t> taken;  // by receives that wait
  for (const Receive& receive : of(process).receives) ++taken[receive.stream];
  for (const Message& m : messages_) {
    if (std::get<0>(m.stream) != from || std::get<1>(m.stream) != process) continue;
    if (const auto receive = taken.find(m.stream); receive != taken.end() && receive->second-- > 0)
      continue;
    if (m.arrives <= now()) *tag = std::get<2>(m.stream), *bytes = m.bytes;
    break;
  }
  return nullptr;
}

}  // namespace coshard
