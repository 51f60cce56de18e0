#pragma once
// The attributes of a call: everything about it that is not a tensor. An operator that has any
// defines a struct of named fields, which is passed as Attrs and read back by its type:
//
//   struct ClipAttrs { double limit; };
//   call1(op, {x}, ClipAttrs{2});            attrs.as<ClipAttrs>().limit
//
// Such a struct is an aggregate of up to 5 fields: integers, flags, enumerators, floating-point
// numbers, a Shape, Opaque, or another such struct.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <tuple>
#include <type_traits>
#include <typeinfo>

#include <coshard/dtensor/mesh/shape.h>
#include <coshard/runtime/error.h>

#pragma GCC visibility push(default)
namespace coshard {

// A field that changes from call to call but affects neither rule nor shapes (a random stream); not
// compared.
struct Opaque {
  std::uint64_t value = 0;
};

// A struct of attributes by value, or none. Fields are stored by kind (integers and what is stored
// as one, floating-point numbers, opaque values), which is how the decision cache compares them.
class Attrs {
 public:
  Attrs() = default;
  template <class Struct>
  requires(std::is_aggregate_v<Struct>) Attrs(const Struct& fields)  // NOLINT
      : type_(&typeid(Struct)) {
    put(fields);
  }
  // Error{BadInput}: this is another struct, or none.
  template <class Struct>
  Struct as() const {
    if (!type_ || *type_ != typeid(Struct)) refuse(typeid(Struct));
    Struct fields{};
    Reader{*this}.get(fields);
    return fields;
  }

  std::span<const std::int64_t> ints() const { return ints_.span(); }
  std::span<const double> reals() const { return reals_.span(); }
  // Unlike ==, NaN equals itself, and 0 does not equal -0.
  static bool same_bits(double a, double b) {
    return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
  }
  friend bool operator==(const Attrs& a, const Attrs& b) {
    return same_type(a, b) && std::ranges::equal(a.ints(), b.ints()) &&
           std::ranges::equal(a.reals(), b.reals(), same_bits);
  }

 private:
  // As InlineVector, but unused entries are not zeroed: Attrs are created in every call.
  template <class T, std::size_t N>
  class Fields {
   public:
    void push_back(T value) {
      CS_REQUIRE(size_ < N, "more than ", N, " entries");
      data_[size_++] = value;
    }
    T operator[](std::size_t i) const { return data_[i]; }
    std::span<const T> span() const { return {data_.data(), size_}; }

   private:
    std::size_t size_ = 0;
    std::array<T, N> data_;
  };
  // Stands for any field while they are counted; a Shape is made from it by its own constructor.
  struct AnyField {
    template <class Field>
    requires(!std::is_same_v<Field, Shape>) operator Field() const;  // NOLINT
  };
  template <class S, class... Fields>
  static constexpr bool is_made_of(Fields... fields) {
    return requires { S{fields...}; };
  }
  // References to the fields of a struct, in order.
  template <class Struct>
  static constexpr auto fields_of(Struct& all) {
    using S = std::remove_const_t<Struct>;
    constexpr AnyField x{};
    static_assert(std::is_aggregate_v<S> && std::is_trivially_copyable_v<S>);
    static_assert(!is_made_of<S>(x, x, x, x, x, x), "at most 5 fields");
    if constexpr (is_made_of<S>(x, x, x, x, x)) {
      auto& [a, b, c, d, e] = all;
      return std::tie(a, b, c, d, e);
    } else if constexpr (is_made_of<S>(x, x, x, x)) {
      auto& [a, b, c, d] = all;
      return std::tie(a, b, c, d);
    } else if constexpr (is_made_of<S>(x, x, x)) {
      auto& [a, b, c] = all;
      return std::tie(a, b, c);
    } else if constexpr (is_made_of<S>(x, x)) {
      auto& [a, b] = all;
      return std::tie(a, b);
    } else {
      auto& [a] = all;
      return std::tie(a);
    }
  }

  template <class Field>
  void put(const Field& field) {
    if constexpr (std::is_same_v<Field, Opaque>) {
      opaque_.push_back(field.value);
    } else if constexpr (std::is_same_v<Field, Shape>) {
      put(field.size());
      for (const std::int64_t size : field) put(size);
    } else if constexpr (std::is_floating_point_v<Field>) {
      reals_.push_back(field);
    } else if constexpr (std::is_integral_v<Field> || std::is_enum_v<Field>) {
      ints_.push_back(static_cast<std::int64_t>(field));
    } else {
      std::apply([this](const auto&... part) { (this->put(part), ...); }, fields_of(field));
    }
  }
  struct Reader {
    const Attrs& from;
    std::size_t ints = 0, reals = 0, opaque = 0;

    template <class Field>
    void get(Field& field) {
      if constexpr (std::is_same_v<Field, Opaque>) {
        field.value = from.opaque_[opaque++];
      } else if constexpr (std::is_same_v<Field, Shape>) {
        const auto size = static_cast<std::size_t>(from.ints_[ints++]);
        const std::int64_t* const begin = from.ints().data() + ints;
        field = Shape(begin, begin + size);
        ints += size;
      } else if constexpr (std::is_floating_point_v<Field>) {
        field = static_cast<Field>(from.reals_[reals++]);
      } else if constexpr (std::is_integral_v<Field> || std::is_enum_v<Field>) {
        field = static_cast<Field>(from.ints_[ints++]);
      } else {
        std::apply([this](auto&... part) { (this->get(part), ...); }, fields_of(field));
      }
    }
  };
  static bool same_type(const Attrs& a, const Attrs& b) {
    return a.type_ == b.type_ || (a.type_ && b.type_ && *a.type_ == *b.type_);
  }
  [[noreturn]] void refuse(const std::type_info& wanted) const;

  const std::type_info* type_ = nullptr;
  Fields<std::int64_t, 20> ints_;
  Fields<double, 4> reals_;
  Fields<std::uint64_t, 2> opaque_;
};

}  // namespace coshard
#pragma GCC visibility pop
