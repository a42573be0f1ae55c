// The scores of `softmax.h`, each as a functor: the logits of an edge, and from their gradients those
// of the rows that made them. A new score is one more of these, and a line where softmax.cc chooses.
//
//   kSharesRows  whether the values are the far rows themselves, which are then read but once
//   Far          type of the numbers in far rows
//   Take         a row of one's own, as Logits and Gradient have it: own_size() floats
//   Logits       of one edge, prefetching the far row `later` on the way
//   Gradient     of a block of edges of one row: adds to d_own, and if not null to d_shared, and
//                writes d_edge, all from the gradients of the logits in the block
//   Write        from the sum of what Gradient adds to the gradient of the row

#ifndef GTJAX_SCORES_H_
#define GTJAX_SCORES_H_

#include <cmath>

#include "heads.h"
#include "softmax.h"

namespace GTJAX_VARIANT {
namespace {

template <typename Shape, typename T>
struct DotProduct {
  static constexpr bool kSharesRows = false;
  using Far = T;
  const gtjax::Scoring& in;
  const EdgeData& edges;
  const Shape shape;
  const int64_t heads = shape.heads, size = shape.size();
  const float scale = 1.0f / std::sqrt(static_cast<float>(shape.width()));

  int64_t own_size() const { return size; }

  const T* Row(const Table& table, int64_t row) const { return RowOf<T>(table, row, size); }

  void Take(const Table& own, int64_t row, float* to) const {
    shape.Copy(Row(own, row), scale, to);
  }

  void Logits(const float* own, const T* far, const T* later, int64_t position,
              float* logits) const {
    shape.Dots(own, far, later, logits);
    AddBias(edges, position, heads, logits);
  }

  void Gradient(const float*, const Block<T>& block, const int64_t* positions, int64_t count,
                float* d_own, float* d_edge, float*) const {
    if (d_edge) {
      for (int64_t b = 0; b < count; ++b) {
        std::copy_n(block.of(b, heads), heads, d_edge + positions[b] * heads);
      }
    }
    shape.AddScaled(block.of(0, heads), Padded(heads), block.rows, kNoRows<T>, count, d_own);
  }

  void Write(const float* d_own, float* to) const { shape.Copy(d_own, scale, to); }
};

template <typename Shape, typename T>
struct Gat {
  static constexpr bool kSharesRows = false;
  using Far = float;
  const gtjax::Scoring& in;
  const EdgeData& edges;
  const Shape shape;
  const int64_t heads = shape.heads;

  int64_t own_size() const { return Padded(heads); }

  const float* Row(const Table& table, int64_t row) const {
    return RowOf<float>(table, row, heads);
  }

  void Take(const Table& own, int64_t row, float* to) const {
    std::copy_n(Row(own, row), heads, to);
  }

  void Logits(const float* own, const float* far, const float* later, int64_t position,
              float* logits) const {
    __builtin_prefetch(later, 0, kIntoL2);
    __builtin_prefetch(later + heads - 1, 0, kIntoL2);
    const float* bias = edges.bias ? edges.bias + position * heads : nullptr;
    EachHead([&](auto lanes, int64_t h) {
      constexpr int N = decltype(lanes)::value;
      const Vec<N> x = Sum<N>(own, far, bias, h);
      // No edge stays none, also with a slope of zero.
      const Vec<N> low = x == -INFINITY ? x : in.slope * x;
      Store<N>(logits + h, x >= 0.0f ? x : low);
    });
  }

  void Gradient(const float* own, const Block<float>& block, const int64_t* positions,
                int64_t count, float* d_own, float* d_edge, float*) const {
    for (int64_t b = 0; b < count; ++b) {
      const float* bias = edges.bias ? edges.bias + positions[b] * heads : nullptr;
      EachHead([&](auto lanes, int64_t h) {
        constexpr int N = decltype(lanes)::value;
        const Vec<N> dlogit = Load<N>(block.of(b, heads) + h);
        const Vec<N> dx = Sum<N>(own, block.rows[b], bias, h) >= 0.0f ? dlogit : in.slope * dlogit;
        Store<N>(d_own + h, Load<N>(d_own + h) + dx);
        if (d_edge) Store<N>(d_edge + positions[b] * heads + h, dx);
      });
    }
  }

  void Write(const float* d_own, float* to) const { std::copy_n(d_own, heads, to); }

 private:
  template <int N>
  static Vec<N> Sum(const float* own, const float* far, const float* bias, int64_t h) {
    const Vec<N> x = Load<N>(own + h) + Load<N>(far + h);
    return bias ? x + Load<N>(bias + h) : x;
  }

  template <typename F>
  void EachHead(const F& f) const {
    int64_t h = 0;
    for (; h + 8 <= heads; h += 8) f(Lanes<8>{}, h);
    for (; h < heads; ++h) f(Lanes<1>{}, h);
  }
};

template <typename Shape, typename T>
struct Gatv2 {
  static constexpr bool kSharesRows = true;
  using Far = T;
  const gtjax::Scoring& in;
  const EdgeData& edges;
  const Shape shape;
  const int64_t heads = shape.heads, size = shape.size();

  int64_t own_size() const { return size; }

  const T* Row(const Table& table, int64_t row) const { return RowOf<T>(table, row, size); }

  void Take(const Table& own, int64_t row, float* to) const { shape.Copy(Row(own, row), 1.0f, to); }

  void Logits(const float* own, const T* far, const T* later, int64_t position,
              float* logits) const {
    WithFeatures([&](auto features) {
      const T* feature = features ? Row(in.features, position) : far;
      shape.Sums(
          [&](auto lanes, int64_t i) {
            constexpr int N = decltype(lanes)::value;
            PrefetchLine<N>(later, i);
            const Vec<N> x = Sum<N, decltype(features)::value>(own, far, feature, i);
            return Load<N>(in.shared + i) * (x >= 0.0f ? x : in.slope * x);
          },
          logits);
    });
  }

  void Gradient(const float* own, const Block<T>& block, const int64_t* positions, int64_t count,
                float* d_own, float* d_edge, float* d_shared) const {
    const T* features[kBlock];
    if (in.features.data) {
      for (int64_t b = 0; b < count; ++b) features[b] = Row(in.features, positions[b]);
    }
    WithFeatures([&](auto with) {
      shape.Each([&](auto lanes, int64_t h, int64_t i) {
        constexpr int N = decltype(lanes)::value;
        const Vec<N> shared = Load<N>(in.shared + i);
        Vec<N> slopes{}, values{};  // sums over the edges, times the gradients of their logits
        for (int64_t b = 0; b < count; ++b) {
          const T* feature = with ? features[b] : block.rows[b];
          const Vec<N> x = Sum<N, decltype(with)::value>(own, block.rows[b], feature, i);
          const float dlogit = block.of(b, heads)[h];
          const Vec<N> steep = Vec<N>{} + dlogit, flat = Vec<N>{} + in.slope * dlogit;
          const Vec<N> slope = x >= 0.0f ? steep : flat;
          slopes += slope;
          values += slope * x;
          if (with && d_edge) Store<N>(d_edge + positions[b] * size + i, shared * slope);
        }
        Store<N>(d_own + i, Load<N>(d_own + i) + shared * slopes);
        if (d_shared) Store<N>(d_shared + i, Load<N>(d_shared + i) + values);
      });
    });
  }

  void Write(const float* d_own, float* to) const { std::copy_n(d_own, size, to); }

 private:
  template <int N, bool kFeatures>
  static Vec<N> Sum(const float* own, const T* far, const T* feature, int64_t i) {
    const Vec<N> x = Load<N>(own + i) + Load<N>(far + i);
    if constexpr (kFeatures) return x + Load<N>(feature + i);
    return x;
  }

  template <typename F>
  void WithFeatures(const F& f) const {
    if (in.features.data) f(std::true_type{});
    else f(std::false_type{});
  }
};

}  // namespace
}  // namespace GTJAX_VARIANT

#endif  // GTJAX_SCORES_H_
