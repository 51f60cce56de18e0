#pragma once
// A program whose locale groups the digits of numbers, and has a comma for the decimal point.
#include <locale>
#include <string>

namespace coshard::testing {

// "1.234,5", and "ja" for true: of a facet, so that no locale must be installed.
struct GroupedFacet final : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
  std::string do_truename() const override { return "ja"; }
  std::string do_falsename() const override { return "nein"; }
};

// Such a locale is the process's while this lives.
class GroupedNumbers {
 public:
  GroupedNumbers() : before_(std::locale::global(std::locale(std::locale(), new GroupedFacet))) {}
  ~GroupedNumbers() { std::locale::global(before_); }
  GroupedNumbers(const GroupedNumbers&) = delete;
  GroupedNumbers& operator=(const GroupedNumbers&) = delete;

 private:
  std::locale before_;
};

}  // namespace coshard::testing
