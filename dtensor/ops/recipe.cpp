#include "dtensor/ops/recipe.h"

#include <algorithm>

#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/tape/tape.h>
#include <coshard/runtime/coro/rank_context.h>
#include "dtensor/ops/local.h"
#include "dtensor/ops/writes.h"

namespace coshard {
namespace {

const BranchLocal<bool> deferring;

// The values that a tensor has at one moment, made when they are needed.
struct ValuesNow {
  std::function<Tensor(const std::shared_ptr<const Spec>& spec)> make;  // spec: if by_element
  bool by_element = false;
  std::vector<Noted> notes;
};

// Holds a copy of what has memory, and never x itself, whose recipe may come to hold this.
ValuesNow values_of(const Tensor& x) {
  const std::shared_ptr<Recipe> recipe = recipe_of(x);
  if (!recipe) {
    Tensor copy = copy_of(x);
    std::vector<Noted> notes{{"wrote initial values with hash", "in elements", bits_hash(copy),
                              static_cast<std::uint64_t>(copy.numel())}};
    return {[copy = std::move(copy)](const auto&) { return copy; }, false, std::move(notes)};
  }
  auto now = std::make_shared<const Recipe>(*recipe);
  const bool by_element = recipe->is_by_element(x);
  const auto make = [now, by_element, shape = x.local_shape(), strides = x.strides(),
                     offset = x.storage_offset(),
                     own = x.spec()](const std::shared_ptr<const Spec>& spec) {
    return by_element && spec ? now->made(spec) : now->made().view_as(shape, strides, offset, own);
  };
  return {make, by_element, recipe->notes()};
}

// Of the inputs of an operator from `first` on; `by_element`: all are, and have this shape.
std::vector<ValuesNow> values_of_all(std::span<const Tensor> in, const Shape& shape,
                                     bool& by_element, std::vector<Noted>& notes) {
  std::vector<ValuesNow> values(in.size());
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (!in[i].defined()) continue;
    values[i] = values_of(in[i]);
    by_element = by_element && values[i].by_element && in[i].shape() == shape;
    notes.insert(notes.end(), values[i].notes.begin(), values[i].notes.end());
  }
  return values;
}

std::vector<Tensor> made_all(const std::vector<ValuesNow>& values,
                             const std::shared_ptr<const Spec>& spec) {
  std::vector<Tensor> made;
  for (const ValuesNow& each : values) made.push_back(each.make ? each.make(spec) : Tensor());
  return made;
}

bool all_plain(std::span<const Tensor> in) {
  return std::ranges::none_of(in,
                              [](const Tensor& t) { return t.defined() && t.is_distributed(); });
}

class RandomStateKept {
 public:
  RandomStateKept() = default;
  ~RandomStateKept() { set_random_state(before_); }
  RandomStateKept(const RandomStateKept&) = delete;
  RandomStateKept& operator=(const RandomStateKept&) = delete;

 private:
  RandomState before_ = random_state();
};

}  // namespace

bool defers_init() { return deferring.get(); }
void set_defers_init(bool on) { deferring.own() = on; }

MakeNow::MakeNow(bool pauses) : paused_(pauses && deferring.get() ? &Branch::current() : nullptr) {
  if (paused_ != nullptr) deferring.own() = false;
}
// A destroyed coroutine may have outlived its branch.
MakeNow::~MakeNow() {
  if (paused_ != nullptr && paused_ == &Branch::current()) deferring.own() = true;
}

Recipe::Recipe(std::shared_ptr<Device> device, std::shared_ptr<const Spec> spec,
               const Shape& local_shape, DType dtype)
    : device_(std::move(device)),
      spec_(std::move(spec)),
      local_shape_(local_shape),
      dtype_(dtype) {}

std::string Recipe::describe() const { return "the initial values of " + name; }

void Recipe::fail_empty() const {
  const std::string what =
      str_cat(name.empty() ? "a tensor" : name, name.empty() ? " " : " (", dtype_, shape(),
              name.empty() ? "" : ")", " has no values yet: it was made under DeferredInit");
  if (defers_init())
    fail(ErrorKind::BadInput,
         str_cat(what,
                 ", which is open and records writes and operators off the tape, but cannot "
                 "read values; materialize() it first, or make it outside of that scope"));
  fail(ErrorKind::BadInput,
       str_cat(what, name.starts_with("parameter") ? "; call load(module, folder) or " : "; call ",
               "materialize(", name.empty() ? "tensor" : "module",
               ") before it is read; a DeferredInit that is open records writes"));
}

bool Recipe::covers(const Tensor& x) const {
  return x.storage_offset() == 0 && x.local_shape() == local_shape_ && x.is_contiguous();
}

bool Recipe::is_by_element(const Tensor& x) const {
  return covers(x) && x.shape() == shape() &&
         std::ranges::all_of(steps_, [](const auto& step) { return step->by_element; });
}

void Recipe::add(const Tensor& x, bool by_element, std::vector<Noted> notes, Write write) {
  const bool partial = x.is_distributed() && x.layout().has_partial();
  const bool all = covers(x) && (x.spec() == spec_ || (x.shape() == shape() && !partial));
  if (!all)
    write = [write = std::move(write), shape = x.local_shape(), strides = x.strides(),
             offset = x.storage_offset(),
             spec = x.spec()](const Tensor& y) { write(y.view_as(shape, strides, offset, spec)); };
  steps_.push_back(std::make_shared<const Step>(
      Step{std::move(write), by_element && all, random_state(), std::move(notes)}));
}

std::vector<Noted> Recipe::notes() const {
  std::vector<Noted> all;
  for (const auto& step : steps_) all.insert(all.end(), step->notes.begin(), step->notes.end());
  return all;
}

Tensor Recipe::made(const std::shared_ptr<const Spec>& spec) const {
  const Tensor x =
      spec ? Tensor::empty(device_, spec, dtype_) : Tensor::empty(device_, local_shape_, dtype_);
  const MakeNow now;
  const NoGradGuard off;
  const RandomStateKept kept;
  for (const auto& step : steps_) {
    set_random_state(step->random);
    step->write(x);
  }
  return x;
}

std::shared_ptr<Recipe> Recipe::as_part(std::shared_ptr<const Spec> spec, bool by_element) const {
  auto part = std::make_shared<Recipe>(device_, spec, spec->local_shape, dtype_);
  if (by_element) part->steps_ = steps_;
  part->alike_ = alike_;
  part->name = name;
  return part;
}

Tensor Recipe::tensor_of(std::shared_ptr<Recipe> recipe) {
  const Tensor x =
      Tensor::empty(recipe->device_, Shape{0}, recipe->dtype_)
          .view_as(recipe->local_shape_, row_major(recipe->local_shape_), 0, recipe->spec_);
  x.set_in_flight(Work(std::move(recipe)));
  return x;
}

void Recipe::compare_with_next() const {
  std::vector<std::pair<DeviceMesh, int>> alike = alike_;
  for (int m = 0; spec_ && m < spec_->mesh.ndim(); ++m) alike.emplace_back(spec_->mesh, m);
  for (const auto& [mesh, dim] : alike)
    for (const Noted& each : notes())
      if (mesh.contains_this_rank()) mesh.note(dim, each);
}

std::shared_ptr<Recipe> recipe_of(const Tensor& x) {
  if (!x.defined() || !x.in_flight()) return nullptr;
  return std::dynamic_pointer_cast<Recipe>(x.storage()->pending.state());
}

void require_values(const Tensor& x) {
  if (const auto recipe = recipe_of(x)) recipe->wait(WorkState::kAll);
}

void name_values(const Tensor& x, std::string_view name) {
  if (const auto recipe = recipe_of(x)) recipe->name = name;
}

Tensor empty_later(const std::shared_ptr<Device>& device, std::shared_ptr<const Spec> spec,
                   const Shape& local_shape, DType dtype) {
  if (!defers_init() || RankContext::current().branch().place.site.known()) return {};
  require_size(local_shape, size_of(dtype), "empty");
  return Recipe::tensor_of(std::make_shared<Recipe>(device, std::move(spec), local_shape, dtype));
}

bool fill_later(const Tensor& x, Recipe::Write fill) {
  const auto recipe = defers_init() ? recipe_of(x) : nullptr;
  if (recipe) recipe->add(x, true, {}, std::move(fill));
  return recipe != nullptr;
}

bool draw_later(const Tensor& x, std::string_view who, Recipe::Write draw) {
  const auto recipe = defers_init() ? recipe_of(x) : nullptr;
  if (!recipe) return false;
  require_may_write(x, who);
  CS_REQUIRE(is_floating(x.dtype()), "random: ", x, " is none of f32, f64, bf16 and f16");
  const RandomState now = random_state();
  recipe->add(x, true, {{"drew random stream", "of seed", now.next_stream, now.seed}},
              std::move(draw));
  take_stream(x);
  return true;
}

bool write_later(const OpDef& op, std::span<const Tensor> in, const Attrs& attrs,
                 std::string_view who) {
  const Tensor& x = in[0];
  const auto recipe = defers_init() ? recipe_of(x) : nullptr;
  const std::span<const Tensor> others = in.subspan(1);
  if (!recipe || taped(in) || !all_plain(others)) return false;
  std::vector<TensorInfo> infos;
  for (const Tensor& t : in)
    infos.push_back(t.defined() ? TensorInfo{t.shape(), t.dtype()}
                                : TensorInfo{{}, x.dtype(), false});
  const TensorInfo result = op.infer(infos, attrs).front();
  require_result_fits(x, result.shape, result.dtype, who);
  bool by_element = op.pointwise;
  std::vector<Noted> notes;
  std::vector<ValuesNow> values = values_of_all(others, x.shape(), by_element, notes);
  if (x.is_distributed() && !by_element) return false;
  recipe->add(x, by_element, std::move(notes),
              [&op, attrs, values = std::move(values)](const Tensor& y) {
                std::vector<Tensor> inputs = made_all(values, y.spec());
                inputs.insert(inputs.begin(), y);
                call_in_place(op, inputs, attrs);
              });
  return true;
}

bool compute_later(const OpDef& op, OpContext& context) {
  const auto defers = [](const Tensor& t) { return recipe_of(t) != nullptr; };
  if (!defers_init() || std::ranges::none_of(context.in, defers) || taped(context.in) ||
      !all_plain(context.in))
    return false;
  const std::shared_ptr<Device> device = context.in[0].device();
  for (std::size_t i = 0; i < static_cast<std::size_t>(context.outputs); ++i) {
    const Shape& shape = context.out_shape[i];
    const auto recipe = std::make_shared<Recipe>(device, nullptr, shape, context.out_dtype[i]);
    const Tensor out = Recipe::tensor_of(recipe);
    bool by_element = op.pointwise;
    std::vector<Noted> notes;
    std::vector<ValuesNow> values = values_of_all(context.in, shape, by_element, notes);
    recipe->add(out, by_element, std::move(notes),
                [&op, attrs = context.attrs, values = std::move(values), i](const Tensor& y) {
                  copy_(y, call(op, made_all(values, y.spec()), attrs)[i]);
                });
    context.out[i] = out;
  }
  return true;
}

DTensor cut_later(const Tensor& x, std::shared_ptr<const Spec> spec,
                  std::function<Tensor(const Tensor& x)> cut) {
  const std::shared_ptr<Recipe> whole = recipe_of(x);
  const bool by_element =
      whole->is_by_element(x) && spec->shape == x.shape() && !spec->layout.has_partial();
  const std::shared_ptr<Recipe> part = whole->as_part(std::move(spec), by_element);
  const Tensor out = Recipe::tensor_of(part);
  if (by_element) return out;
  ValuesNow now = values_of(x);
  part->add(out, false, std::move(now.notes),
            [make = std::move(now.make), cut = std::move(cut)](const Tensor& y) {
              const Tensor local = y.raw_local();
              if (local.local_numel() > 0) copy_(local, cut(make(nullptr)).raw_local());
            });
  return out;
}

void take_memory(const Tensor& x, const Tensor& values) {
  Storage& storage = *x.storage();
  const std::shared_ptr<Buffer> buffer = values.storage()->buffer;
  buffer->writes = storage.changes() + 1;
  buffer->taped_write = storage.buffer->taped_write;
  storage.buffer = buffer;
  storage.in_flight = false;
  storage.pending = Work();
}

}  // namespace coshard
