#pragma once
// The random numbers of a simulation, the same on every machine (splitmix64).
#include <cstdint>

namespace coshard {

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : state_(seed) {}
  // 0 .. below - 1
  std::uint64_t operator()(std::uint64_t below) {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return (z ^ (z >> 31)) % below;
  }
  bool happens(double probability) {
    constexpr std::uint64_t kSteps = std::uint64_t{1} << 53;
    return static_cast<double>((*this)(kSteps)) < probability * static_cast<double>(kSteps);
  }

 private:
  std::uint64_t state_;
};

}  // namespace coshard
