#pragma once
// The placements of a module's inputs and outputs in a style, by position or by keyword. Trivial
// values, so that styles can be written inside a co_await expression.
#include <array>
#include <initializer_list>
#include <optional>
#include <ostream>
#include <span>
#include <string_view>

#include <coshard/dtensor/mesh/inline_vector.h>
#include <coshard/dtensor/mesh/placement.h>

#pragma GCC visibility push(default)
namespace coshard {

// One placement, or a list in which nullopt leaves its tensor alone:
//   .input_layouts = Shard(1)      .input_layouts = {Shard(0), std::nullopt}
class Placements {
 public:
  Placements() = default;                                               // not given
  Placements(Placement only) : given_(true) { list_.push_back(only); }  // NOLINT: implicit
  Placements(std::initializer_list<std::optional<Placement>> list)
      : Placements(std::span<const std::optional<Placement>>(list.begin(), list.size())) {}
  explicit Placements(std::span<const std::optional<Placement>> list)
      : list_(list.begin(), list.end()), given_(true) {}

  bool given() const { return given_; }
  std::size_t size() const { return list_.size(); }
  // Error{BadInput}: no such position.
  const std::optional<Placement>& operator[](std::size_t i) const {
    CS_REQUIRE(i < size(), "placements: position ", i, " is out of range for ", size(), " of them");
    return list_[i];
  }

 private:
  InlineVector<std::optional<Placement>, 8> list_;
  bool given_ = false;
};

// Placements by argument name: .input_kwarg_layouts = {{"mask", Shard(0)}}. A name has at most 47
// characters.
class KeywordPlacements {
 public:
  struct Entry {
    Entry() = default;
    Entry(std::string_view name, std::optional<Placement> placement);
    std::string_view name() const { return text.data(); }

    std::array<char, 48> text{};
    std::optional<Placement> placement;
  };
  KeywordPlacements() = default;  // not given
  KeywordPlacements(std::initializer_list<Entry> list)
      : KeywordPlacements(std::span<const Entry>(list.begin(), list.size())) {}
  explicit KeywordPlacements(std::span<const Entry> list)
      : list_(list.begin(), list.end()), given_(true) {}

  bool given() const { return given_; }
  std::size_t size() const { return list_.size(); }
  const Entry* begin() const { return list_.begin(); }
  const Entry* end() const { return list_.end(); }
  // nullopt for an unknown name.
  std::optional<Placement> of(std::string_view name) const;
  bool has(std::string_view name) const;

 private:
  InlineVector<Entry, 8> list_;
  bool given_ = false;
};

std::ostream& operator<<(std::ostream& out, const Placements& placements);         // (S(0), None)
std::ostream& operator<<(std::ostream& out, const KeywordPlacements& placements);  // {mask: S(0)}

}  // namespace coshard
#pragma GCC visibility pop
