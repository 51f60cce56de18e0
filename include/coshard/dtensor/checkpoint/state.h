#pragma once
// State: tensors by name, as torch's state_dict. Holds handles, no copies: what `load` reads goes
// into their memory. Rank's thread.
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <coshard/dtensor/tensor/tensor.h>

#pragma GCC visibility push(default)
namespace coshard {

struct NamedState {
  std::string name;
  Tensor tensor;
  std::vector<std::string> also;  // further names of the same tensor (tied parameters)
};

class State {
 public:
  // Error{BadInput}: an undefined tensor; a name that is empty, "__metadata__" or there already, or
  // has control characters.
  State& add(std::string name, Tensor tensor);
  // Another name for the tensor that is called `name`.
  State& tie(std::string another, std::string_view name);
  // All of `other`, each under "prefix." and its name; "": as they are.
  State& add(std::string_view prefix, const State& other);

  std::size_t size() const { return entries_.size(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }
  // By any of its names; null: there is none.
  const NamedState* find(std::string_view name) const;
  // Error{BadInput}: there is none.
  const Tensor& operator[](std::string_view name) const;

 private:
  void require_new(std::string_view name) const;
  std::vector<NamedState> entries_;
  std::map<std::string, std::size_t, std::less<>> by_name_;  // all names
};

}  // namespace coshard
#pragma GCC visibility pop
