#include <coshard/styles/layouts.h>

#include <algorithm>

namespace coshard {

KeywordPlacements::Entry::Entry(std::string_view name, std::optional<Placement> placement)
    : placement(placement) {
  CS_REQUIRE(!name.empty() && name.size() < text.size(), "a keyword of ", name.size(),
             " characters; from 1 to ", text.size() - 1, " are possible");
  std::copy(name.begin(), name.end(), text.begin());
}

std::optional<Placement> KeywordPlacements::of(std::string_view name) const {
  for (const Entry& entry : list_)
    if (entry.name() == name) return entry.placement;
  return std::nullopt;
}

bool KeywordPlacements::has(std::string_view name) const {
  return std::any_of(begin(), end(), [&](const Entry& entry) { return entry.name() == name; });
}

namespace {

void print(std::ostream& out, const std::optional<Placement>& placement) {
  if (placement) {
    out << *placement;
  } else {
    out << "None";
  }
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Placements& placements) {
  if (!placements.given()) return out << "None";
  out << '(';
  for (std::size_t i = 0; i < placements.size(); ++i) {
    if (i > 0) out << ", ";
    print(out, placements[i]);
  }
  return out << ')';
}

std::ostream& operator<<(std::ostream& out, const KeywordPlacements& placements) {
  if (!placements.given()) return out << "None";
  out << '{';
  bool first = true;
  for (const KeywordPlacements::Entry& entry : placements) {
    if (!first) out << ", ";
    first = false;
    out << entry.name() << ": ";
    print(out, entry.placement);
  }
  return out << '}';
}

}  // namespace coshard
