#pragma once
// Counts the collectives of one rank: by kind, forward and backward, and by module. An observer;
// owned by whoever adds it to a World, used on that rank's thread.
#include <array>
#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include <coshard/runtime/observer.h>

#pragma GCC visibility push(default)
namespace coshard {

class CollectiveCounter : public Observer {
 public:
  struct Count {
    std::int64_t forward = 0, backward = 0;  // collectives
    std::int64_t bytes = 0;                  // of both
    std::int64_t total() const { return forward + backward; }
  };

  // Over all modules.
  std::int64_t total() const;
  std::int64_t total(CollectiveKind kind) const { return count(kind).total(); }
  std::int64_t forward(CollectiveKind kind) const { return count(kind).forward; }
  std::int64_t backward(CollectiveKind kind) const { return count(kind).backward; }
  Count count(CollectiveKind kind) const;
  // Issued inside the module `path` ("layers.0.attn") or its submodules; in backward, by what that
  // module's forward put on the tape while observed. The path "" is everything.
  Count in_module(std::string_view path, CollectiveKind kind) const;
  // Modules that issued something themselves, not counting submodules.
  std::vector<std::string> modules() const;
  void reset() { counts_.clear(); }

  void issued(const CommEvent& event, std::int64_t now) override;
  void module_enter(std::string_view path) override { modules_.emplace_back(path); }
  void module_exit(std::string_view path) override;
  void backward_enter() override { ++backward_depth_; }
  void backward_exit() override { --backward_depth_; }

 private:
  static constexpr std::size_t kKinds = static_cast<std::size_t>(CollectiveKind::Recv) + 1;
  using Counts = std::array<Count, kKinds>;
  std::map<std::string, Counts, std::less<>> counts_;  // by the innermost module
  std::vector<std::string> modules_;                   // entered and not yet left
  int backward_depth_ = 0;
};

// {"all": KINDS, "modules": {path: KINDS}}, where KINDS is {"all_reduce": {"forward", "backward",
// "bytes"}}; only kinds that occurred; a module includes its submodules.
std::string to_json(const CollectiveCounter& counter);

// One line per module and kind.
std::ostream& operator<<(std::ostream& out, const CollectiveCounter& counter);

}  // namespace coshard
#pragma GCC visibility pop
