#include <coshard/dtensor/checkpoint/state.h>

#include <algorithm>
#include <utility>

#include <coshard/runtime/error.h>
#include "dtensor/checkpoint/strict_json.h"

namespace coshard {

void State::require_new(std::string_view name) const {
  const bool printable =
      std::ranges::none_of(name, [](char c) { return static_cast<unsigned char>(c) < ' '; });
  CS_REQUIRE(!name.empty() && printable && name != "__metadata__", "state: '", shortened(name),
             "' cannot be the name of a tensor");
  CS_REQUIRE(find(name) == nullptr, "state: there is a tensor '", shortened(name), "' already");
}

State& State::add(std::string name, Tensor tensor) {
  require_new(name);
  CS_REQUIRE(tensor.defined(), "state: the tensor '", shortened(name), "' is undefined");
  by_name_.emplace(name, entries_.size());
  entries_.push_back({std::move(name), std::move(tensor), {}});
  return *this;
}

State& State::tie(std::string another, std::string_view name) {
  require_new(another);
  const auto found = by_name_.find(name);
  CS_REQUIRE(found != by_name_.end(), "state: there is no tensor '", shortened(name), "' to tie '",
             shortened(another), "' to");
  by_name_.emplace(another, found->second);
  entries_[found->second].also.push_back(std::move(another));
  return *this;
}

State& State::add(std::string_view prefix, const State& other) {
  const std::string before = prefix.empty() ? "" : std::string(prefix) + ".";
  for (const NamedState& entry : other) {
    add(before + entry.name, entry.tensor);
    for (const std::string& name : entry.also) tie(before + name, before + entry.name);
  }
  return *this;
}

const NamedState* State::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &entries_[found->second];
}

const Tensor& State::operator[](std::string_view name) const {
  const NamedState* const found = find(name);
  CS_REQUIRE(found != nullptr, "state: there is no tensor '", shortened(name), "'");
  return found->tensor;
}

}  // namespace coshard
