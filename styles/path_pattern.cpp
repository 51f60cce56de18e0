#include "styles/path_pattern.h"

#include <fnmatch.h>

#include <algorithm>

#include "runtime/near_miss.h"

namespace coshard {
namespace {

std::vector<std::string> parts_of(std::string_view path) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t dot; (dot = path.find('.', begin)) != std::string_view::npos; begin = dot + 1)
    parts.emplace_back(path.substr(begin, dot - begin));
  parts.emplace_back(path.substr(begin));
  return parts;
}

bool part_matches(const std::string& pattern, const std::string& part) {
  return fnmatch(pattern.c_str(), part.c_str(), 0) == 0;
}

// Edit distance in which parts that the pattern matches cost nothing.
std::size_t distance(std::string_view pattern, std::string_view path) {
  const std::vector<std::string> wanted = parts_of(pattern), parts = parts_of(path);
  if (wanted.size() != parts.size()) return edits(pattern, path);
  std::size_t sum = 0;
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (!part_matches(wanted[i], parts[i])) sum += edits(wanted[i], parts[i]);
  return sum;
}

}  // namespace

bool matches(std::string_view pattern, std::string_view path) {
  const std::vector<std::string> wanted = parts_of(pattern), parts = parts_of(path);
  return wanted.size() == parts.size() &&
         std::equal(wanted.begin(), wanted.end(), parts.begin(), part_matches);
}

std::string pattern_of_numbers(std::string_view path) {
  std::string pattern;
  for (const std::string& part : parts_of(path)) {
    const bool is_number = !part.empty() && part.find_first_not_of("0123456789") == part.npos;
    pattern += (pattern.empty() ? "" : ".") + (is_number ? "*" : part);
  }
  return pattern;
}

std::vector<std::string> nearest(std::string_view pattern, std::vector<std::string> names,
                                 std::size_t most) {
  std::vector<std::pair<std::size_t, std::string>> ranked;
  for (std::string& name : names) ranked.emplace_back(distance(pattern, name), std::move(name));
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> best;
  for (auto& [far, name] : ranked)
    if (best.size() < most) best.push_back(std::move(name));
  return best;
}

}  // namespace coshard
