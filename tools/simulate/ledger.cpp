#include "tools/simulate/ledger.h"

#include <algorithm>
#include <cctype>

#include <coshard/runtime/launch/world.h>

namespace coshard::tools {
namespace {

std::string module_here() {
  const World* world = World::current();
  const auto path = world != nullptr ? world->module() : nullptr;
  return path ? *path : "";
}

bool is_number(std::string_view word) {
  return !word.empty() && std::ranges::all_of(word, [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::string pattern_of(const std::string& path) {
  std::string pattern;
  for (std::size_t begin = 0; begin < path.size();) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    const std::string word = path.substr(begin, end - begin);
    pattern += (pattern.empty() ? "" : ".") + (is_number(word) ? "*" : word);
    begin = end + 1;
  }
  return pattern;
}

void Ledger::add(const std::string& path, bool backward, std::int64_t ModuleTimes::Part::*what,
                 std::int64_t ns) {
  const std::string pattern = pattern_of(path);
  const auto count = [&](const std::string& module) {
    ModuleTimes& times = modules[module];
    ModuleTimes::Part& part = backward ? times.backward : times.forward;
    part.*what += ns;  // g++ 12 adds to a copy if this is one expression
  };
  for (std::size_t dot = pattern.find('.'); dot != std::string::npos;
       dot = pattern.find('.', dot + 1))
    count(pattern.substr(0, dot));
  count(pattern);
}

void Ledger::kernel(const KernelWork& work, std::int64_t begin, std::int64_t end) {
  compute += end - begin;
  flops += work.flops;
  const bool product = work.what != ComputeClass::Other;
  add(module_here(), backward_ > 0,
      product ? &ModuleTimes::Part::products : &ModuleTimes::Part::other, end - begin);
}

void Ledger::issued(const CommEvent& event, std::int64_t now) {
  issues_[event.id] = {now, module_here(), backward_ > 0};
}

Ledger::Name Ledger::name_of(const CommEvent& event) {
  const std::string kind = std::string(to_string(event.kind)) +
                           (event.label.empty() ? "" : " " + std::string(event.label));
  return {std::string(event.communicator), kind};
}

void Ledger::ready(const CommEvent& event, std::int64_t wait_begin, std::int64_t done,
                   std::int64_t now) {
  const auto found = issues_.find(event.id);
  if (found == issues_.end()) return;
  stalled(event, wait_begin, now);
  const Name name = name_of(event);
  const TimeSet::Interval flight{found->second.at, done};
  CollectiveTimes& times = collectives[name];
  ++times.count;
  times.bytes += event.bytes;
  times.in_flight += in_flight_by_name_[name].add(flight);
  in_flight += in_flight_.add(flight);
  issues_.erase(found);
}

void Ledger::stalled(const CommEvent& event, std::int64_t begin, std::int64_t end) {
  const auto found = issues_.find(event.id);
  if (found == issues_.end()) return;
  const Issue& issue = found->second;
  const Name name = name_of(event);
  collectives[name].exposed += stood_still_by_name_[name].add({begin, end});
  const std::int64_t added = stood_still_.add({begin, end});
  // The optimizer waits for collectives that backward issued but did not await.
  const bool after_backward = issue.backward && backward_ == 0;
  add(after_backward ? "" : issue.module, issue.backward && !after_backward,
      &ModuleTimes::Part::exposed, added);
  exposed += added;
}

void VirtualTrace::kernel(const KernelWork& work, std::int64_t begin, std::int64_t end) {
  if (begin == end) return;
  const std::string& text = inputs_;
  ChromeTrace::computing(op_, work.what, [&text] { return text; });
  ChromeTrace::computed(op_.empty() ? work.name : std::string_view(op_), work.what, begin, end);
}

}  // namespace coshard::tools
