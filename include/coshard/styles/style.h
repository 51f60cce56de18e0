#pragma once
// A parallel style defines how one module is sharded: the layouts of its parameters, inputs and
// outputs. Any copyable type with `apply` is a style; Style holds any of them. Errors show it by
// its operator<<, or else by its type's name. Values; used on the rank's thread.
#include <concepts>
#include <memory>
#include <optional>
#include <ostream>
#include <typeinfo>

#include <coshard/dtensor/mesh/device_mesh.h>
#include <coshard/styles/module.h>

#pragma GCC visibility push(default)
namespace coshard {

struct ParallelizeOptions {
  // The rank of the mesh whose parameters all ranks get; nullopt: every rank shards its own data
  // and nothing is sent.
  std::optional<int> src_data_rank = 0;
  // Overlap of linear layers with the collectives around them; a style's own value takes
  // precedence.
  Overlap overlap = Overlap::Auto;
};

// apply(module, mesh, options) replaces parameters by DTensors and adds hooks. The mesh has one
// dimension. Errors are Error{BadInput}, thrown before anything is changed.
template <class T>
concept ParallelStyle = requires(const T& style, Module& module, const DeviceMesh& mesh,
                                 const ParallelizeOptions& options) {
  style.apply(module, mesh, options);
};

class Style {
 public:
  Style() = default;  // empty
  template <class S>
  requires(!std::same_as<S, Style> && ParallelStyle<S>)
      Style(S style)  // NOLINT: implicit, so that plan[key] = S{...}
      : held_(std::make_shared<Held<S>>(std::move(style))) {}

  explicit operator bool() const { return held_ != nullptr; }
  // Error{BadInput}: an empty style; a module that already has one of this type.
  void apply(Module& module, const DeviceMesh& mesh, const ParallelizeOptions& options) const {
    CS_REQUIRE(held_, "parallelize_module: an empty style for ", module.type_name(), " '",
               module.path(), "'");
    held_->apply(module, mesh, options);
  }
  // The placement of the shards that the style leaves as plain tensors; nullopt: it leaves none, or
  // does not say (members output_layouts and use_local_output).
  std::optional<Placement> local_output() const { return held_->local_output(); }
  friend std::ostream& operator<<(std::ostream& out, const Style& style) {
    if (!style.held_) return out << "no style";
    style.held_->print(out);
    return out;
  }

 private:
  struct Holder {
    virtual ~Holder() = default;
    virtual void apply(Module&, const DeviceMesh&, const ParallelizeOptions&) const = 0;
    virtual void print(std::ostream&) const = 0;
    virtual std::optional<Placement> local_output() const = 0;
  };
  template <class S>
  struct Held final : Holder {
    explicit Held(S given) : style(std::move(given)) {}
    void apply(Module& module, const DeviceMesh& mesh,
               const ParallelizeOptions& options) const override {
      module.claim(str_cat("given the style ", type_name_of(typeid(S))));
      style.apply(module, mesh, options);
    }
    void print(std::ostream& out) const override {
      if constexpr (requires { out << style; })
        out << style;
      else
        out << type_name_of(typeid(S));
    }
    std::optional<Placement> local_output() const override {
      if constexpr (requires { Placement(style.output_layouts); })
        if (style.use_local_output && Placement(style.output_layouts).is_sharded())
          return style.output_layouts;
      return std::nullopt;
    }
    S style;
  };
  std::shared_ptr<const Holder> held_;
};

}  // namespace coshard
#pragma GCC visibility pop
