#pragma once
// Where a tensor's data come from (Storage::origin): a number for what factories make, a hash of
// operator and inputs for a result. Rank's thread.
#include <cstdint>
#include <span>
#include <string_view>

#include <coshard/dtensor/tensor.h>

namespace coshard {

// Numbers a tensor that the program makes, not those for the library's own use, of which a rank may
// have more than its peers.
Tensor numbered(Tensor tensor);
bool has_number(const Tensor& tensor);

inline std::uint64_t with_origin(std::uint64_t hash, std::uint64_t origin) {
  constexpr std::uint64_t kHash = 1ULL << 63;  // numbers are small
  hash = (hash ^ origin) * 0x9e3779b97f4a7c15U;
  return (hash ^ (hash >> 29)) | kHash;
}

// Of what an operator makes of these inputs.
inline std::uint64_t origin_of_result(std::uint64_t op, std::span<const Tensor> in) {
  for (const Tensor& t : in)
    if (t.defined()) op = with_origin(op, t.storage()->origin);
  return op;
}

// The order in which the tensors of a list were made, for Collective::names: "tensors 2,0-1 in order
// of creation", or "" if the list is in that order. Interned.
std::string_view order_of_creation(std::span<const Tensor> list);

}  // namespace coshard
