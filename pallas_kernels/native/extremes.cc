// The passes of `extremes.h`. A block of edges of one row at a time, channels outside and edges
// inside, so that what is known so far stays in registers; so rows are fetched a block ahead.
//
// Compiled once for each set of instructions, with GTJAX_VARIANT as its name.

#include "extremes.h"

#include <algorithm>
#include <cmath>

#include "heads.h"
#include "pieces.h"

namespace GTJAX_VARIANT {
namespace {

template <typename Shape, typename T>
struct ExtremesPass {
  const gtjax::Extremes& in;
  const Shape shape;
  const int64_t size = shape.size();

  struct Scratch {
    explicit Scratch(const ExtremesPass&) {}
  };

  // State: the largest so far, and on how many edges it is. A NaN is larger than everything.
  int64_t state_size() const { return 2 * size; }

  void Row(int64_t, int64_t first, int64_t last, float* state, Scratch&) const {
    float *best = state, *ties = state + size;
    std::fill(best, best + size, -INFINITY);
    std::fill(ties, ties + size, 0.0f);
    const int32_t* far = in.rows.columns;
    const int64_t ahead = std::max<int64_t>(kBlock, Ahead(size * sizeof(T)));
    const int64_t end = in.rows.offsets[in.rows.rows];
    const T *rows[kBlock], *next[kBlock];
    for (int64_t start = first; start < last; start += kBlock) {
      const int64_t count = std::min<int64_t>(kBlock, last - start);
      for (int64_t b = 0; b < count; ++b) {
        rows[b] = RowOf<T>(in.far, far[start + b], size);
        next[b] = RowOf<T>(in.far, far[std::min(start + b + ahead, end - 1)], size);
      }
      shape.Each([&](auto lanes, int64_t, int64_t i) {
        constexpr int N = decltype(lanes)::value;
        // The largest of the block, leaving out NaN, and then who has it: chains of one step each.
        Vec<N> top = Vec<N>{} - INFINITY;
        IntVec<N> nans{}, minus_count{};
        for (int64_t b = 0; b < count; ++b) {
          PrefetchLine<N>(next[b], i);
          const Vec<N> x = in.sign * Load<N>(rows[b] + i);
          top = x > top ? x : top;
          nans |= x != x;
        }
        for (int64_t b = 0; b < count; ++b) {
          minus_count += in.sign * Load<N>(rows[b] + i) == top;
        }
        const Vec<N> of_block = nans ? Vec<N>{} + NAN : top;
        Vec<N> most = Load<N>(best + i), number = Load<N>(ties + i);
        Merge<N>(of_block, __builtin_convertvector(-minus_count, Vec<N>), most, number);
        Store<N>(best + i, most);
        Store<N>(ties + i, number);
      });
    }
  }

  template <int N>
  static void Merge(Vec<N> x, Vec<N> ties, Vec<N>& best, Vec<N>& all_ties) {
    const Vec<N> more = x == best ? all_ties + ties : all_ties;
    const Vec<N> larger = x > best ? ties : more;
    all_ties = x == x ? larger : Vec<N>{};
    best = x <= best ? best : (best == best ? x : best);
  }

  void Add(const float* from, float* into) const {
    for (int64_t i = 0; i < size; ++i) {
      Vec<1> best = Load<1>(into + i), ties = Load<1>(into + size + i);
      Merge<1>(Load<1>(from + i), Load<1>(from + size + i), best, ties);
      Store<1>(into + i, best);
      Store<1>(into + size + i, ties);
    }
  }

  void Write(int64_t r, const float* state) const {
    float *best = in.best + r * size, *ties = in.ties + r * size;
    const bool any = in.rows.offsets[r] < in.rows.offsets[r + 1];
    shape.Each([&](auto lanes, int64_t, int64_t i) {
      constexpr int N = decltype(lanes)::value;
      const Vec<N> most = Load<N>(state + i), number = Load<N>(state + size + i);
      Store<N>(best + i, !in.finish ? most : any ? in.sign * most : Vec<N>{});
      Store<N>(ties + i, number);
    });
  }
};

template <typename Shape, typename T>
struct BackwardPass {
  const gtjax::ExtremesBackward& in;
  const Shape shape;
  const int64_t size = shape.size();

  struct Scratch {
    std::vector<float> own;
    explicit Scratch(const BackwardPass& pass) : own(pass.size) {}
  };

  // State: the gradient of the row.
  int64_t state_size() const { return size; }

  void Row(int64_t r, int64_t first, int64_t last, float* state, Scratch& scratch) const {
    std::fill(state, state + size, 0.0f);
    if (first == last) return;
    const int32_t* far = in.rows.columns;
    const int64_t ahead = std::max<int64_t>(kBlock, Ahead(size * sizeof(T)));
    const int64_t end = in.rows.offsets[in.rows.rows];
    const T *outs[kBlock], *next_outs[kBlock];
    const float *shares[kBlock], *next_shares[kBlock];
    shape.Copy(RowOf<T>(in.own, r, size), 1.0f, scratch.own.data());
    for (int64_t start = first; start < last; start += kBlock) {
      const int64_t count = std::min<int64_t>(kBlock, last - start);
      for (int64_t b = 0; b < count; ++b) {
        const int64_t here = far[start + b], later = far[std::min(start + b + ahead, end - 1)];
        outs[b] = RowOf<T>(in.out, here, size), next_outs[b] = RowOf<T>(in.out, later, size);
        shares[b] = in.share + here * size, next_shares[b] = in.share + later * size;
      }
      shape.Each([&](auto lanes, int64_t, int64_t i) {
        constexpr int N = decltype(lanes)::value;
        const Vec<N> own = Load<N>(scratch.own.data() + i);
        Vec<N> sum = Load<N>(state + i);
        for (int64_t b = 0; b < count; ++b) {
          PrefetchLine<N>(next_outs[b], i);
          PrefetchLine<N>(next_shares[b], i);
          const Vec<N> share = Load<N>(shares[b] + i);
          sum += own == Load<N>(outs[b] + i) ? share : Vec<N>{};
        }
        Store<N>(state + i, sum);
      });
    }
  }

  void Add(const float* from, float* into) const {
    for (int64_t i = 0; i < size; ++i) into[i] += from[i];
  }

  void Write(int64_t r, const float* state) const {
    std::copy_n(state, size, in.d_own + r * size);
  }
};

template <template <typename, typename> class Pass, typename In>
void Run(const In& in, bool half, const gtjax::Pool& pool) {
  ForShape<false>(in.rows.heads, in.rows.width, half, [&](auto shape, auto pointer) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(pointer)>>;
    RunInPieces(Pass<decltype(shape), T>{in, shape}, in.rows, pool);
  });
}

}  // namespace

extern const gtjax::ExtremePasses kExtremes;
const gtjax::ExtremePasses kExtremes = {
    [](const gtjax::Extremes& in, const gtjax::Pool& pool) {
      Run<ExtremesPass>(in, in.far.half, pool);
    },
    [](const gtjax::ExtremesBackward& in, const gtjax::Pool& pool) {
      Run<BackwardPass>(in, in.own.half, pool);
    },
};

}  // namespace GTJAX_VARIANT
