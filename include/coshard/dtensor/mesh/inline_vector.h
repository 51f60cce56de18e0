#pragma once
// A vector of small trivially copyable values with inline storage and a fixed capacity, for shapes,
// layouts and attributes. A value type; copying is a memcpy. Exceeding the capacity is
// Error{BadInput}. Braced lists use a variadic constructor, because g++ 12 refuses an
// initializer_list inside a co_await expression.
#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <iterator>
#include <span>
#include <type_traits>

#include <coshard/runtime/error.h>

#pragma GCC visibility push(default)
namespace coshard {

template <class Value, class T>
concept EntryOf = std::convertible_to<Value, T> &&
    !(std::integral<T> && std::floating_point<std::remove_cvref_t<Value>>);

template <class T, std::size_t N>
class InlineVector {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  using value_type = T;
  constexpr InlineVector() = default;
  // {2, 4}; a floating-point number is not accepted in a vector of integers.
  template <class... Values>
  requires(sizeof...(Values) > 0 && sizeof...(Values) <= N && (EntryOf<Values, T> && ...))  //
      constexpr InlineVector(const Values&... values)  // NOLINT
      : data_{static_cast<T>(values)...}, size_(sizeof...(Values)) {}
  template <std::input_iterator It>
  constexpr InlineVector(It first, It last) {
    for (; first != last; ++first) push_back(static_cast<T>(*first));
  }
  static constexpr InlineVector filled(std::size_t count, const T& value) {
    InlineVector all;
    for (std::size_t i = 0; i < count; ++i) all.push_back(value);
    return all;
  }

  constexpr void push_back(const T& value) {
    CS_REQUIRE(size_ < N, "more than ", N, " entries");
    data_[size_++] = value;
  }
  constexpr void pop_back() { --size_; }
  constexpr void insert(std::size_t at, const T& value) {
    push_back(value);
    std::rotate(begin() + at, end() - 1, end());
  }
  constexpr void erase(std::size_t at) {
    std::move(begin() + at + 1, end(), begin() + at);
    --size_;
  }
  constexpr std::size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr T& operator[](std::size_t i) { return data_[i]; }
  constexpr const T& operator[](std::size_t i) const { return data_[i]; }
  constexpr T* begin() { return data_.data(); }
  constexpr T* end() { return data_.data() + size_; }
  constexpr const T* begin() const { return data_.data(); }
  constexpr const T* end() const { return data_.data() + size_; }
  constexpr T& back() { return data_[size_ - 1]; }
  constexpr const T& back() const { return data_[size_ - 1]; }
  constexpr std::span<const T> span() const { return {data_.data(), size_}; }
  friend constexpr bool operator==(const InlineVector& a, const InlineVector& b) {
    return a.size_ == b.size_ && std::equal(a.begin(), a.end(), b.begin());
  }

 private:
  std::array<T, N> data_{};
  std::size_t size_ = 0;
};

}  // namespace coshard
#pragma GCC visibility pop
