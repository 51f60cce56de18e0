#pragma once
// What gives the values of a tensor without memory (deferred_init.h). Such a tensor is in flight
// until something fills it, so that what reads it fails where it would wait; the recipe is the work
// that it would wait for. Its views share the recipe. Rank's thread.
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <coshard/dtensor/ops/op.h>
#include <coshard/dtensor/tensor/generator.h>
#include <coshard/runtime/comm/communicator.h>
#include <coshard/runtime/comm/work.h>
#include <coshard/runtime/coro/branch.h>
#include "dtensor/tensor/deferred_values.h"

namespace coshard {

// Whether a DeferredInit is open in this branch.
bool defers_init();
void set_defers_init(bool on);

// For its lifetime, no DeferredInit counts as open.
class [[nodiscard]] MakeNow {
 public:
  explicit MakeNow(bool pauses = true);
  ~MakeNow();
  MakeNow(const MakeNow&) = delete;
  MakeNow& operator=(const MakeNow&) = delete;

 private:
  Branch* paused_;  // null: none was open
};

class Recipe final : public DeferredValues {
 public:
  // Writes into a tensor of the recipe's shape, in any layout if `by_element`, else as the
  // recipe's.
  using Write = std::function<void(const Tensor&)>;
  struct Step {
    Write write;
    bool by_element;
    RandomState random;        // before it
    std::vector<Noted> notes;  // which values it writes, for ranks to compare
  };

  Recipe(std::shared_ptr<Device> device, std::shared_ptr<const Spec> spec, const Shape& local_shape,
         DType dtype);

  // Fails: there are no values. Error{BadInput} names the tensor and what gives it values.
  void note(WorkEvent event) override {
    if (event == WorkEvent::Needed) fail_empty();
  }
  void wait(int) override { fail_empty(); }
  Poll poll(Poller, int) override { return Poll::Done; }
  WorkInfo info(int) const override { return {.waits_for_peers = false}; }
  std::string describe() const override;

  // Adds a write of x, one of the tensors that share this recipe.
  void add(const Tensor& x, bool by_element, std::vector<Noted> notes, Write write);
  // Whether x is all of the memory, in its order.
  bool covers(const Tensor& x) const;
  // Whether values of x can be made in every layout.
  bool is_by_element(const Tensor& x) const;
  std::vector<Noted> notes() const;
  // New memory with the values, in the recipe's layout or another.
  Tensor made() const { return made(spec_); }
  Tensor made(const std::shared_ptr<const Spec>& spec) const;
  // Of the same values in another layout: of the same steps, which must be by element, or none yet.
  std::shared_ptr<Recipe> as_part(std::shared_ptr<const Spec> spec, bool by_element) const;
  // The tensor without memory whose values it gives.
  static Tensor tensor_of(std::shared_ptr<Recipe> recipe);
  // Ranks along this dimension must have equal values.
  void must_be_alike(const DeviceMesh& mesh, int dim) { alike_.emplace_back(mesh, dim); }
  // The next collectives of the meshes on which ranks hold parts or replicas compare the notes.
  void compare_with_next() const;

  std::string name;  // of the parameter or buffer, once known

 private:
  [[noreturn]] void fail_empty() const;
  const Shape& shape() const { return spec_ ? spec_->shape : local_shape_; }

  std::shared_ptr<Device> device_;
  std::shared_ptr<const Spec> spec_;
  Shape local_shape_;
  DType dtype_;
  std::vector<std::shared_ptr<const Step>> steps_;
  std::vector<std::pair<DeviceMesh, int>> alike_;
};

// Null: x has memory.
std::shared_ptr<Recipe> recipe_of(const Tensor& x);
// Error{BadInput}: x has none.
void require_values(const Tensor& x);
// What errors call x. Nothing if it has memory.
void name_values(const Tensor& x, std::string_view name);

// A tensor without memory; an undefined one if no scope is open, or within a call of the library.
Tensor empty_later(const std::shared_ptr<Device>& device, std::shared_ptr<const Spec> spec,
                   const Shape& local_shape, DType dtype);
// Each adds to the recipe of x, under an open scope; false: x has memory, or nothing can be added.
// Of constants:
bool fill_later(const Tensor& x, Recipe::Write fill);
// Of draws from one random stream, which is taken now. Checks x as `who` does.
bool draw_later(const Tensor& x, std::string_view who, Recipe::Write draw);
// Of an operator in place on in[0]. Checks as `who` does.
bool write_later(const OpDef& op, std::span<const Tensor> in, const Attrs& attrs,
                 std::string_view who);
// Gives a call outputs without memory, if one of its inputs has none.
bool compute_later(const OpDef& op, OpContext& context);

// What `cut` makes of x, which has no memory: a local tensor of `spec`, without communication. It
// is made later, from x's values as they are now.
DTensor cut_later(const Tensor& x, std::shared_ptr<const Spec> spec,
                  std::function<Tensor(const Tensor& x)> cut);

// x and what shares its recipe take the memory of `values`, a new tensor that x is all of.
void take_memory(const Tensor& x, const Tensor& values);

}  // namespace coshard
