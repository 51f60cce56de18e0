#include "tests/kernels/cuda/on_device.h"

namespace coshard::kernels {
namespace {
using namespace testing;

enum class Mask { None, Bias, Keep };
enum class Part { Forward, Both };
const DType kShort[] = {DType::BF16, DType::F16};
constexpr std::int64_t kSquare = 1 << 20;  // as diagonal: tk - tq

struct Case {
  std::int64_t batch, heads, kv_heads, tq, tk, dim;
  bool causal = false;
  Mask mask = Mask::None;
  std::int64_t value_dim = 0;  // 0: dim
  std::int64_t shift = kSquare;
  bool interleaved = false;  // heads lie inside [b, t, h, d] memory
  double scale = 1 / std::sqrt(double(dim));
  std::int64_t diagonal() const { return shift == kSquare ? tk - tq : shift; }
  std::int64_t values() const { return value_dim != 0 ? value_dim : dim; }
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << "b " << c.batch << " h " << c.heads << "/" << c.kv_heads << " tq " << c.tq << " tk "
             << c.tk << " d " << c.dim << "/" << c.values() << " causal " << c.causal
             << " diagonal " << c.diagonal() << " mask " << static_cast<int>(c.mask)
             << " interleaved " << c.interleaved;
}

// Inputs and results of one call and its gradients.
struct Arrays {
  Data q, k, v, dout, mask, out, lse, dq, dk, dv, dmask;
  Arrays(DType dtype, const Case& c)
      : q(Data::normal(dtype, c.batch * c.heads * c.tq * c.dim, 1)),
        k(Data::normal(dtype, c.batch * c.kv_heads * c.tk * c.dim, 2)),
        v(Data::normal(dtype, c.batch * c.kv_heads * c.tk * c.values(), 3)),
        dout(Data::normal(dtype, c.batch * c.heads * c.tq * c.values(), 4)),
        mask(c.mask == Mask::Keep ? Data::integers(DType::Bool, c.batch * c.tq * c.tk, 5, 0, 1)
                                  : Data::normal(dtype, c.batch * c.tq * c.tk, 5)),
        out(dtype, c.batch * c.heads * c.tq * c.values()),
        lse(statistic(dtype), c.batch * c.heads * c.tq),
        dq(dtype, q.count()),
        dk(dtype, k.count()),
        dv(dtype, v.count()),
        dmask(dtype, c.batch * c.heads * c.tq * c.tk) {
    // The first query of each batch sees nothing.
    for (std::int64_t b = 0; c.tq > 0 && b < c.batch; ++b)
      for (std::int64_t j = 0; j < c.tk; ++j)
        mask.set(b * c.tq * c.tk + j, c.mask == Mask::Keep ? 0 : -INFINITY);
  }
};

// The arguments over `a`; pointer(data) is where a kernel finds it.
template <class Pointer>
std::pair<Attention, AttentionGrad> arguments(const Case& c, Arrays& a, Pointer pointer) {
  const std::vector<int> order =
      c.interleaved ? std::vector<int>{0, 2, 1, 3} : std::vector<int>{0, 1, 2, 3};
  const auto view = [&](Data& data, std::int64_t h, std::int64_t rows, std::int64_t columns) {
    View v = data.view({c.batch, h, rows, columns}, order);
    v.data = pointer(data);
    return v;
  };
  View mask{}, dmask{};
  if (c.mask != Mask::None) {
    mask = a.mask.view({c.batch, 1, c.tq, c.tk});
    mask.data = pointer(a.mask);
    mask.shape[1] = c.heads;
    mask.strides[1] = 0;
    dmask = a.dmask.view({c.batch, c.heads, c.tq, c.tk});
    dmask.data = pointer(a.dmask);
  }
  const View q = view(a.q, c.heads, c.tq, c.dim);
  const View k = view(a.k, c.kv_heads, c.tk, c.dim);
  const View v = view(a.v, c.kv_heads, c.tk, c.values());
  const View out = view(a.out, c.heads, c.tq, c.values());
  void* lse = pointer(a.lse);
  return {Attention{out, q, k, v, lse, c.scale, c.causal, c.diagonal(), mask},
          AttentionGrad{view(a.dq, c.heads, c.tq, c.dim), view(a.dk, c.kv_heads, c.tk, c.dim),
                        view(a.dv, c.kv_heads, c.tk, c.values()),
                        view(a.dout, c.heads, c.tq, c.values()), out, q, k, v, lse, c.scale,
                        c.causal, c.diagonal(), mask, dmask}};
}

// out, lse, dq, dk, dv, dmask (last, where there is a mask).
std::vector<Data> on_device(DType dtype, const Case& c, Part part = Part::Both) {
  Arrays a(dtype, c);
  OnDevice on;
  const auto args = arguments(c, a, [&](Data& data) { return on.put(data); });
  on.run(args.first);
  if (part == Part::Forward) return {on.get(a.out), on.get(a.lse)};
  on.run(args.second);
  std::vector<Data> results;
  for (Data* data : {&a.out, &a.lse, &a.dq, &a.dk, &a.dv}) results.push_back(on.get(*data));
  if (c.mask != Mask::None) results.push_back(on.get(a.dmask));
  return results;
}
std::vector<Data> by_reference(DType dtype, const Case& c, Part part = Part::Both) {
  Arrays a(dtype, c);
  const auto args = arguments(c, a, [](Data& data) { return data.ptr(); });
  reference::run(args.first);
  if (part == Part::Forward) return {a.out, a.lse};
  reference::run(args.second);
  std::vector<Data> results = {a.out, a.lse, a.dq, a.dk, a.dv};
  if (c.mask != Mask::None) results.push_back(a.dmask);
  return results;
}

void expect_matches(DType dtype, const Case& c, Part part = Part::Both) {
  const char* names[] = {"out", "lse", "dq", "dk", "dv", "dmask"};
  const auto got = on_device(dtype, c, part);
  const auto want = by_reference(dtype, c, part);
  for (std::size_t i = 0; i < got.size(); ++i) {
    std::ostringstream what;
    what << names[i] << " of " << c;
    expect_close(got[i], want[i], tolerance(dtype) * 5, what.str());
  }
}

TEST(CudaAttention, AndItsGradientsMatchTheReferenceForEveryDType) {
  const Case cases[] = {
      {1, 1, 1, 1, 1, 1, true},
      {2, 4, 2, 17, 17, 32, true},
      {1, 3, 1, 5, 100, 20, true, Mask::None, 0, kSquare, true},
      {1, 2, 2, 65, 40, 48, false},
      {1, 2, 1, 40, 33, 16, true, Mask::None, 24, kSquare, true},
      {2, 2, 1, 33, 37, 16, false, Mask::Bias},
      {2, 2, 2, 35, 35, 8, true, Mask::Bias, 12},
      {1, 2, 1, 40, 37, 16, false, Mask::Keep, 0, kSquare, true},
      {1, 1, 1, 9, 20, 100, true},
      {1, 2, 1, 20, 19, 200, true, Mask::None, 256},
      {1, 1, 1, 30, 20, 8, true, Mask::None, 0, 3},
      {1, 1, 1, 30, 20, 8, true, Mask::None, 0, -7},
      {0, 2, 2, 4, 4, 8, true},
      {1, 2, 2, 0, 4, 8, true},
      {1, 2, 2, 4, 0, 8, false},
  };
  for (const DType dtype : kFloating)
    for (const Case& c : cases) expect_matches(dtype, c);
}

TEST(CudaAttention, MatchesTheReferenceForDrawnShapes) {
  std::mt19937 engine(7);
  const auto draw = [&](std::vector<std::int64_t> of) {
    return of[std::uniform_int_distribution<std::size_t>(0, of.size() - 1)(engine)];
  };
  for (int turn = 0; turn < 30; ++turn) {
    Case c{
        draw({1, 2}),         0, draw({1, 2}), draw({1, 7, 64, 65, 130}), draw({1, 7, 64, 65, 130}),
        draw({4, 16, 40, 64})};
    c.heads = c.kv_heads * draw({1, 2});
    c.causal = draw({0, 1}) == 1;
    c.mask = static_cast<Mask>(draw({0, 0, 1, 2}));
    c.interleaved = draw({0, 1}) == 1;
    c.shift = draw({kSquare, 0, 5, -3});
    expect_matches(kFloating[static_cast<std::size_t>(draw({0, 1, 2}))], c);
  }
}

// Of the short floats, which tensor cores compute: tiles that are full, cut and padded.
const Case kTensorCoreCases[] = {
    {1, 1, 1, 16, 8, 64},
    {1, 2, 1, 130, 130, 64, true},
    {2, 2, 2, 65, 70, 64, false, Mask::None, 0, kSquare, true},
    {1, 2, 1, 64, 64, 128, true},
    {1, 3, 1, 70, 130, 128, true, Mask::None, 0, kSquare, true},
    {1, 2, 1, 150, 40, 64, true},  // most queries see nothing
    {1, 1, 1, 70, 70, 64, true, Mask::None, 0, 9},
    {1, 1, 1, 1, 1, 128, true},
    {1, 2, 2, 0, 4, 64, true},
    {1, 2, 2, 70, 0, 128, false},
};
// Heads between the sizes of tiles, of which rows may not begin at 16 bytes, and unequal values.
const Case kWidthCases[] = {
    {1, 1, 1, 40, 33, 72},  {1, 1, 1, 33, 40, 96, true},
    {1, 1, 1, 34, 35, 75},  {1, 2, 1, 35, 20, 160, true, Mask::None, 0, kSquare, true},
    {1, 1, 1, 40, 17, 192}, {1, 1, 1, 36, 40, 224, true, Mask::None, 40},
    {1, 1, 1, 33, 33, 256}, {1, 1, 1, 65, 18, 20, true, Mask::None, 256},
};
const Case kMaskCases[] = {
    {1, 2, 1, 40, 66, 64, false, Mask::Bias},       {1, 2, 2, 35, 37, 96, true, Mask::Bias, 64},
    {2, 1, 1, 70, 33, 40, true, Mask::Keep},        {1, 1, 1, 33, 70, 128, false, Mask::Keep},
    {1, 1, 1, 40, 20, 192, true, Mask::Keep, 0, 3},
};

TEST(CudaAttention, OnTensorCoresMatchesTheReference) {
  for (const DType dtype : kShort)
    for (const Case& c : kTensorCoreCases) expect_matches(dtype, c);
}
TEST(CudaAttention, OnTensorCoresTakesHeadsOfEveryWidth) {
  for (const DType dtype : kShort)
    for (const Case& c : kWidthCases) expect_matches(dtype, c);
}
TEST(CudaAttention, OnTensorCoresTakesMasks) {
  for (const DType dtype : kShort)
    for (const Case& c : kMaskCases) expect_matches(dtype, c);
}

// A few queries: heads of a group share a tile, and many keys are cut into parts.
TEST(CudaAttention, OfAFewQueriesMatchesTheReference) {
  const Case cases[] = {
      {1, 8, 2, 1, 1100, 64, true},
      {2, 3, 1, 1, 520, 96, false, Mask::Keep},
      {1, 2, 2, 3, 600, 128, true},
      {1, 4, 1, 7, 700, 20, true, Mask::None, 0, 400},
      {1, 1, 1, 2, 530, 256, false},
      {1, 20, 1, 1, 300, 64, true},
      {1, 2, 1, 5, 515, 64, true, Mask::Bias},
      {1, 1, 1, 4, 600, 64, true, Mask::None, 0, -2},
  };
  for (const DType dtype : kShort)
    for (const Case& c : cases) expect_matches(dtype, c, Part::Forward);
}

TEST(CudaAttention, OnTensorCoresTakesRowsThatLieAnywhere) {
  const Case c{1, 2, 1, 35, 40, 64, true};
  const auto want = by_reference(DType::F16, c);
  Arrays a(DType::F16, c);
  std::map<const Data*, Data> shifted;  // by one element
  OnDevice on;
  const auto place = [&](Data& data) -> void* {
    Data& wide = shifted.try_emplace(&data, data.dtype(), data.count() + 1).first->second;
    for (std::int64_t i = 0; i < data.count(); ++i) wide.set(i + 1, data.get(i));
    return static_cast<std::byte*>(on.put(wide)) + size_of(data.dtype());
  };
  const auto args = arguments(c, a, place);
  on.run(args.first);
  on.run(args.second);
  const Data* outs[] = {&a.out, &a.lse, &a.dq, &a.dk, &a.dv};
  for (std::size_t i = 0; i < std::size(outs); ++i) {
    const Data wide = on.get(shifted.at(outs[i]));
    Data got(wide.dtype(), wide.count() - 1);
    for (std::int64_t e = 0; e < got.count(); ++e) got.set(e, wide.get(e + 1));
    expect_close(got, want[i], tolerance(DType::F16) * 5, "shifted " + std::to_string(i));
  }
}

TEST(CudaAttention, TakesAScaleThatIsNotPositive) {
  for (const double scale : {-0.125, 0.0}) {
    Case c{1, 1, 1, 40, 33, 64, true};
    c.scale = scale;
    for (const DType dtype : {DType::F32, DType::BF16}) expect_matches(dtype, c);
    c.tq = 3;
    expect_matches(DType::F16, c);
  }
}

TEST(CudaAttention, GivesZeroToAQueryThatSeesNoKey) {
  for (const DType dtype : kFloating) {
    const auto got = on_device(dtype, {1, 1, 1, 5, 2, 4, true});
    for (int i = 0; i < 3 * 4; ++i) {
      EXPECT_EQ(got[0].get(i), 0);
      EXPECT_EQ(got[2].get(i), 0);
    }
    for (int i = 0; i < 3; ++i) EXPECT_EQ(got[1].get(i), -INFINITY);
    EXPECT_GT(got[1].get(3), -INFINITY);
  }
}

TEST(CudaAttention, RepeatsItsBits) {
  const Case c{1, 4, 2, 50, 70, 32, true};
  for (const DType dtype : kFloating) EXPECT_EQ(on_device(dtype, c), on_device(dtype, c));
  const Case wide{1, 4, 2, 70, 130, 64, true};
  const Case few{1, 4, 2, 1, 600, 64, true};
  for (const Case& of : {wide, few})
    EXPECT_EQ(on_device(DType::BF16, of), on_device(DType::BF16, of));
}

TEST(CudaAttention, RefusesHeadsThatDoNotGroupOrAreTooWide) {
  EXPECT_ANY_THROW(on_device(DType::F32, {1, 3, 2, 4, 4, 8}));
  EXPECT_ANY_THROW(on_device(DType::F32, {1, 1, 1, 4, 4, 260}));
}

}  // namespace
}  // namespace coshard::kernels
