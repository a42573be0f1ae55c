// The pass of `sums.h`: gathers one table of rows, where attention gathers two.
//
// Compiled once for each set of instructions, with GTJAX_VARIANT as its name.

#include "sums.h"

#include <algorithm>

#include "heads.h"
#include "pieces.h"

namespace GTJAX_VARIANT {
namespace {

template <typename Shape, typename T>
struct SumPass {
  const gtjax::Sums& in;
  const Shape shape;
  const int64_t heads = in.rows.heads, size = shape.size(), padded = Padded(heads);
  const bool dropout = !in.edges.draws.empty();
  // Whether the weights are used as they stand, or there are none.
  const bool plain = !dropout && !in.shares && !(in.weights && in.edges.order);

  struct Scratch {
    std::vector<float> own, products;
    Block<T> scales;
    explicit Scratch(const SumPass& pass)
        : own(pass.in.dots ? pass.size : 0), products(pass.padded), scales(pass.heads) {
      std::fill(scales.numbers.begin(), scales.numbers.end(), 1.0f);
    }
  };

  // State: the sum.
  int64_t state_size() const { return size; }

  void Row(int64_t r, int64_t first, int64_t last, float* state, Scratch& scratch) const {
    std::fill(state, state + size, 0.0f);
    if (first == last) return;
    const int32_t* far = in.rows.columns;
    const int64_t ahead = Ahead(size * sizeof(T)), end = in.rows.offsets[in.rows.rows];
    Block<T>& block = scratch.scales;
    if (in.dots) shape.Copy(RowOf<T>(in.own, r, size), 1.0f, scratch.own.data());
    for (int64_t start = first; start < last; start += kBlock) {
      const int64_t count = std::min<int64_t>(kBlock, last - start);
      for (int64_t b = 0; b < count; ++b) {
        const int64_t e = start + b, next = std::min(e + ahead, end - 1);
        block.rows[b] = RowOf<T>(in.far, far[e], size);
        block.next[b] = RowOf<T>(in.far, far[next], size);
        if (!plain) Scales(e, next, block.of(b, heads));
        if (in.dots) Dots(e, next, block.rows[b], block.next[b], scratch);
      }
      const bool own_weights = plain && in.weights;
      shape.AddScaled(own_weights ? in.weights + start * heads : block.of(0, heads),
                      own_weights ? heads : padded, block.rows, in.dots ? kNoRows<T> : block.next,
                      count, state);
    }
  }

  // What the far row of an edge is multiplied with, for each head.
  void Scales(int64_t e, int64_t next, float* scales) const {
    PrefetchEdge(in.edges, next, heads);
    const int64_t position = Position(in.edges, e);
    if (!in.weights) return Shrunk(e, position, [](int64_t) { return 1.0f; }, scales);
    if (in.edges.order) {
      Prefetch(in.weights + int64_t{in.edges.order[next]} * heads, heads * sizeof(float));
    }
    const float* weights = in.weights + position * heads;
    Shrunk(e, position, [weights](int64_t h) { return weights[h]; }, scales);
  }

  // out[h] = of(h), times what dropout keeps and the share of the far row.
  template <typename F>
  void Shrunk(int64_t e, int64_t position, const F& of, float* out) const {
    const float share = in.shares ? in.shares[in.rows.columns[e]] : 1.0f;
    if (!dropout) {
      for (int64_t h = 0; h < heads; ++h) out[h] = of(h) * share;
      return;
    }
    for (int64_t h = 0; h < heads; h += 8) {
      const Vec<8> keep = Keep(in.edges, position, h) * share;
      for (int64_t i = 0; i < std::min<int64_t>(8, heads - h); ++i) out[h + i] = of(h + i) * keep[i];
    }
  }

  void Dots(int64_t e, int64_t next, const T* row, const T* later, Scratch& scratch) const {
    float* products = scratch.products.data();
    const int64_t position = Position(in.edges, e);
    float* dots = in.dots + position * heads;
    if (in.edges.order) {
      __builtin_prefetch(in.dots + int64_t{in.edges.order[next]} * heads, 1, kIntoL2);
    }
    shape.Dots(scratch.own.data(), row, later, products);
    if (in.add) {
      for (int64_t h = 0; h < heads; ++h) dots[h] += products[h];
    } else {
      Shrunk(e, position, [products](int64_t h) { return products[h]; }, dots);
    }
  }

  void Add(const float* from, float* into) const {
    for (int64_t i = 0; i < size; ++i) into[i] += from[i];
  }

  void Write(int64_t r, const float* state) const {
    float* out = in.out + r * size;
    const int64_t count = in.rows.offsets[r + 1] - in.rows.offsets[r];
    const float factor = in.mean && count ? in.factor / count : in.factor;
    if (!in.start) return shape.Copy(state, factor, out);
    const float* start = in.start + r * size;
    for (int64_t i = 0; i < size; ++i) out[i] = factor * state[i] + in.restart * start[i];
  }
};

void Run(const gtjax::Sums& in, const gtjax::Pool& pool) {
  ForShape<false>(in.rows.heads, in.rows.width, in.far.half, [&](auto shape, auto pointer) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(pointer)>>;
    RunInPieces(SumPass<decltype(shape), T>{in, shape}, in.rows, pool);
  });
}

}  // namespace

extern const gtjax::SumPasses kSums;
const gtjax::SumPasses kSums = {Run};

}  // namespace GTJAX_VARIANT
