#pragma once
// Modules made under a DeferredInit or as always, and their bits.
#include <map>
#include <memory>

#include "tests/styles/support.h"

#include <coshard/dtensor/distribute/deferred_init.h>

namespace coshard::testing {

template <class M, class... Args>
std::shared_ptr<M> made_deferred(bool deferred, Args&&... args) {
  if (!deferred) return std::make_shared<M>(args...);
  const DeferredInit scope;
  return std::make_shared<M>(args...);
}

using Bits = std::map<std::string, std::vector<std::byte>>;
// The bits of this rank's part of each parameter and buffer.
inline Bits bits_of(Module& module) {
  Bits bits;
  const auto take = [&](const std::string& name, const Tensor& x) {
    const Tensor part = copy_of(x.detach().raw_local());
    std::vector<std::byte>& all = bits[name + " " + describe(x)];
    all.resize(static_cast<std::size_t>(part.local_numel()) * size_of(part.dtype()));
    if (!all.empty()) part.device()->download(all.data(), part.const_data(), all.size());
  };
  for (const NamedParameter& p : module.named_slots()) take(p.name, *p.slot);
  for (const NamedBuffer& b : module.named_buffers()) take(b.name, *b.slot);
  return bits;
}

inline std::array<std::uint64_t, 3> state_now() {
  const RandomState now = random_state();
  return {now.seed, now.next_stream, now.local};
}

}  // namespace coshard::testing
