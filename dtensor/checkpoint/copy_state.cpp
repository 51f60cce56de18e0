#include <utility>

#include <coshard/dtensor/checkpoint/load.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include "dtensor/checkpoint/agreement.h"
#include "dtensor/checkpoint/exchange.h"
#include "dtensor/checkpoint/fit.h"
#include "dtensor/checkpoint/local_parts.h"
#include "dtensor/checkpoint/same_state.h"
#include "dtensor/checkpoint/strict_json.h"
#include "dtensor/ops/recipe.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

struct Pairs {
  std::vector<Tensor> from, to;
  std::vector<DType> types;  // of `from`
  // Of a further name in `from` of what is tied in `to`: the name, what it has, what it must be.
  struct Tied {
    std::string name;
    Tensor copy, of;
  };
  std::vector<Tied> tied;
};

// What is to be copied; what is missing, unexpected and cast goes into `report`.
Pairs paired(const State& from, const State& to, const LoadOptions& options, LoadReport& report) {
  Pairs pairs;
  Complaints complaints;
  const auto take = [&](const std::string& name, const Tensor& x, const Tensor& here) {
    require_values(x);
    if (x.shape() != here.shape())
      complaints.add("'", shortened(name), "' has shape ", x.shape(), " there and ", here.shape(),
                     " here");
    else if (!may_be_cast(x.dtype(), here.dtype(), options.cast))
      complaints.add_type(name, to_string(x.dtype()), here.dtype(),
                          may_be_cast(x.dtype(), here.dtype(), Cast::Any));
    if (x.dtype() != here.dtype()) report.cast.push_back(name);
    pairs.from.push_back(x);
    pairs.to.push_back(here);
    pairs.types.push_back(x.dtype());
  };
  for (const NamedState& entry : to) {
    const NamedState* found = from.find(entry.name);
    for (const std::string& name : entry.also)
      if (found == nullptr) found = from.find(name);
    if (found == nullptr) {
      report.missing.push_back(entry.name);
      continue;
    }
    take(entry.name, found->tensor, entry.tensor);
    for (const std::string& name : entry.also) {
      const NamedState* const more = from.find(name);
      if (more == nullptr || more == found) continue;
      pairs.tied.push_back({name, empty_as(entry.tensor), entry.tensor});
      take(name, more->tensor, pairs.tied.back().copy);
    }
  }
  for (const NamedState& entry : from) {
    bool known = to.find(entry.name) != nullptr;
    for (const std::string& name : entry.also) known = known || to.find(name) != nullptr;
    if (!known) report.unexpected.push_back(entry.name);
  }
  if (options.strict) complaints.add_names(report);
  complaints.require_none("copy_state");
  return pairs;
}

std::vector<PlacedTensor> placed(const Pairs& pairs, std::vector<HeldTensor> held) {
  std::vector<PlacedTensor> all;
  std::int64_t at = 0;
  for (std::size_t i = 0; i < held.size(); ++i) {
    const std::int64_t bytes =
        pairs.from[i].numel() * static_cast<std::int64_t>(size_of(pairs.types[i]));
    all.push_back({0, at, at + bytes, std::move(held[i])});
    at += bytes;
  }
  return all;
}

Task<void> move(World& world, Pairs& pairs, PartsToLoad& parts) {
  pairs.from = without_partials(std::move(pairs.from));
  Task<void> arrived = arrival_of(pairs.from);
  co_await std::move(arrived);
  Task<std::vector<HeldTensor>> givers = holders_of(world, pairs.from, pairs.types);
  std::vector<HeldTensor> given = co_await std::move(givers);
  std::vector<PlacedTensor> sources = placed(pairs, std::move(given));
  Task<std::vector<HeldTensor>> takers = holders_of(world, pairs.to, pairs.types);
  std::vector<HeldTensor> taken = co_await std::move(takers);
  std::vector<PlacedTensor> targets = placed(pairs, std::move(taken));
  const std::int64_t bytes = sources.empty() ? 0 : sources.back().end;
  const Bands bands({bytes}, {{0, 0, bytes}}, world.size(), window_bytes(world.size()));
  Exchange collecting(world, bands, sources), spreading(world, bands, targets);
  const std::vector<int> last = spreading.last_windows();
  PartsToSave reads(pairs.from, pairs.types);
  ByteVector whole;
  for (int window = -1; window < bands.windows(); ++window) {
    if (window >= 0) {
      whole.resize(static_cast<std::size_t>(bytes_in_memory(bands.window(world.rank(), window))));
      Task<void> collected = collecting.collect(window, reads, whole);
      co_await std::move(collected);
      Task<void> spread = spreading.spread(window, whole, parts);
      co_await std::move(spread);
    }
    for (std::size_t i = 0; i < last.size(); ++i) {
      if (last[i] != window) continue;
      reads.let_go(i);
      parts.put(i);
    }
  }
}

}  // namespace

// As if `from` were saved into one file without a header and loaded from it.
Task<LoadReport> copy_state(State from, State to, LoadOptions options, CallSite site) {
  const UserCall user(site);
  World* const world = World::current();
  CS_REQUIRE(world != nullptr, "copy_state: called outside of a rank's program");
  LoadReport report;
  Pairs pairs;
  std::optional<PartsToLoad> parts;
  const std::exception_ptr failed = failure_of([&] {
    pairs = paired(from, to, options, report);
    parts.emplace(pairs.to, pairs.types);
  });
  State both;
  both.add("from", from).add("to", to);
  Task<void> same = require_same_state(
      *world, "copy_state", both,
      str_cat("strict ", options.strict, ", cast ", static_cast<int>(options.cast)), failed);
  co_await std::move(same);
  Task<void> moved = move(*world, pairs, *parts);
  co_await std::move(moved);
  const std::exception_ptr differs = failure_of([&] {
    for (const Pairs::Tied& tied : pairs.tied)
      CS_REQUIRE(has_same_bits(tied.copy, tied.of), "copy_state: '", shortened(tied.name),
                 "' has other values than the tensor that it is tied to here");
  });
  Task<void> done = agree(*world, differs);
  co_await std::move(done);
  co_return report;
}

}  // namespace coshard
