#pragma once
// An object that counts how often it is made and destroyed, for tests of ownership. One thread.

namespace coshard::testing {

struct Counts {
  int made = 0;
  int destroyed = 0;
  int alive() const { return made - destroyed; }
};

class Counted {
 public:
  explicit Counted(Counts& counts) : counts_(&counts) { ++counts_->made; }
  Counted(const Counted& other) : counts_(other.counts_) { ++counts_->made; }
  Counted(Counted&& other) noexcept : counts_(other.counts_) { ++counts_->made; }
  Counted& operator=(const Counted&) = default;
  ~Counted() { ++counts_->destroyed; }

 private:
  Counts* counts_;
};

}  // namespace coshard::testing
