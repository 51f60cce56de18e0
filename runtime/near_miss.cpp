#include "runtime/near_miss.h"

#include <algorithm>
#include <numeric>

namespace coshard {

std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replace = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replace, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

std::string near_miss(std::string_view word, const std::vector<std::string>& known) {
  const std::size_t letters = word.size() - std::min(word.find_first_not_of('-'), word.size());
  if (letters < 2) return "";
  std::size_t least = (letters + 2) / 3 + 1;  // a third of the letters may be wrong
  std::string best, longer;
  int begin_with = 0;
  for (const std::string& name : known) {
    if (const std::size_t far = edits(word, name); far < least) {
      least = far;
      best = name;
    }
    if (name.starts_with(word)) {
      ++begin_with;
      longer = name;
    }
  }
  return best.empty() && begin_with == 1 ? longer : best;
}

std::string joined(const std::vector<std::string>& words) {
  std::string all;
  for (std::size_t i = 0; i < words.size(); ++i)
    all += (i == 0 ? "" : i + 1 < words.size() ? ", " : " or ") + words[i];
  return all;
}

}  // namespace coshard
