#include "dtensor/checkpoint/same_state.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include <coshard/runtime/error.h>
#include "dtensor/checkpoint/agreement.h"
#include "dtensor/checkpoint/strict_json.h"
#include "runtime/comm/collective.h"

namespace coshard {
namespace {

std::uint64_t hash_of(std::string_view text, std::uint64_t hash) {
  for (const char c : text) hash = mix(hash, static_cast<unsigned char>(c));
  return mix(hash, text.size());
}

std::vector<std::uint64_t> hashes_of(const State& state) {
  std::vector<std::uint64_t> hashes;
  for (const NamedState& entry : state) {
    std::uint64_t hash = hash_of(entry.name, 1);
    for (const std::string& name : entry.also) hash = hash_of(name, hash);
    hash = mix(hash, static_cast<std::uint64_t>(entry.tensor.dtype()));
    for (const std::int64_t size : entry.tensor.shape())
      hash = mix(hash, static_cast<std::uint64_t>(size));
    hashes.push_back(hash);
  }
  return hashes;
}

}  // namespace

Task<void> require_same_state(World& world, std::string_view who, const State& state,
                              std::string arguments, std::exception_ptr own) {
  Task<void> agreed = agree(world, std::move(own));
  co_await std::move(agreed);
  std::vector<std::uint64_t> hashes = hashes_of(state);
  std::uint64_t all = hashes.size();
  for (const std::uint64_t hash : hashes) all = mix(all, hash);
  Task<std::vector<std::uint64_t>> counted =
      gather_numbers<std::uint64_t>(world, {hashes.size(), all, hash_of(arguments, 1)}, "state");
  const std::vector<std::uint64_t> counts = co_await std::move(counted);
  std::size_t most = 0;
  bool equal = true;
  for (std::size_t r = 0; r < counts.size(); r += 3) {
    CS_REQUIRE(counts[r + 2] == counts[2], who, ": ranks 0 and ", r / 3,
               " differ in what they were called with, or in the files that they found; here: ",
               arguments);
    most = std::max(most, static_cast<std::size_t>(counts[r]));
    equal = equal && counts[r] == counts[0] && counts[r + 1] == counts[1];
  }
  if (equal) co_return;
  hashes.resize(most);
  Task<std::vector<std::uint64_t>> listed =
      gather_numbers<std::uint64_t>(world, std::move(hashes), "state");
  const std::vector<std::uint64_t> lists = co_await std::move(listed);
  for (std::size_t i = 0; i < most; ++i)
    for (int rank = 1; rank < world.size(); ++rank) {
      if (lists[static_cast<std::size_t>(rank) * most + i] == lists[i]) continue;
      const NamedState* const mine =
          i < state.size() ? &*(state.begin() + static_cast<std::ptrdiff_t>(i)) : nullptr;
      fail(ErrorKind::BadInput,
           str_cat(who, ": ranks 0 and ", rank, " pass other tensors: number ", i, " of ",
                   state.size(), " here is ",
                   mine != nullptr ? str_cat("'", shortened(mine->name), "', ", mine->tensor)
                                   : "missing"));
    }
}

}  // namespace coshard
