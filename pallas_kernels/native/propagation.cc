// The passes of `propagation.h`: each reads or writes one number for each edge and head.
//
// Compiled once for each set of instructions, with GTJAX_VARIANT as its name.

#include "propagation.h"

#include <algorithm>
#include <cmath>

#include "heads.h"
#include "pieces.h"

namespace GTJAX_VARIANT {
namespace {

// Up to 8 numbers of an array that has no padding.
inline Vec<8> LoadSome(const float* from, int64_t count) {
  if (count >= 8) return Load<8>(from);
  Vec<8> x{};
  std::memcpy(&x, from, count * sizeof(float));
  return x;
}

inline void StoreSome(float* to, Vec<8> x, int64_t count) {
  std::memcpy(to, &x, std::min<int64_t>(count, 8) * sizeof(float));
}

// The weight that dropout leaves. NaN stays NaN.
inline Vec<8> Left(Vec<8> weight) { return weight < 0.0f ? Vec<8>{} : weight; }

template <typename Shape, typename T>
struct WeightsPass {
  const gtjax::SoftmaxWeights& in;
  const Shape shape;
  const int64_t heads = in.rows.heads, size = shape.size(), padded = Padded(heads);
  const float scale = 1.0f / std::sqrt(static_cast<float>(in.rows.width));

  struct Scratch {
    std::vector<float> q;
    explicit Scratch(const WeightsPass& pass) : q(pass.size) {}
  };

  // State: the largest logits and the sums of weights, both padded.
  int64_t state_size() const { return 2 * padded; }

  void Row(int64_t r, int64_t first, int64_t last, float* state, Scratch& scratch) const {
    float *max = state, *sum = state + padded;
    std::fill(max, max + padded, kNothing);
    std::fill(sum, sum + padded, 0.0f);
    if (first == last) return;
    const int32_t* send = in.rows.columns;
    const int64_t ahead = Ahead(size * sizeof(T)), end = in.rows.offsets[in.rows.rows];
    shape.Copy(RowOf<T>(in.q, r, size), scale, scratch.q.data());
    for (int64_t start = first; start < last; start += kBlock) {
      const int64_t stop = std::min(start + kBlock, last);
      for (int64_t e = start; e < stop; ++e) {
        const int64_t later = send[std::min(e + ahead, end - 1)];
        float* logits = in.weights + e * heads;
        shape.Dots(scratch.q.data(), RowOf<T>(in.k, send[e], size), RowOf<T>(in.k, later, size),
                   logits);
        AddBias(in.edges, e, heads, logits);
      }
      for (int64_t h = 0; h < heads; h += 8) {
        const Vec<8> before = Load<8>(max + h);
        Vec<8> top = before;
        for (int64_t e = start; e < stop; ++e) {
          const Vec<8> logit = LoadSome(in.weights + e * heads + h, heads - h);
          top = logit > top ? logit : top;
        }
        Vec<8> total = Load<8>(sum + h) * Exp<8>(before - top);
        for (int64_t e = start; e < stop; ++e) {
          total += Weight(LoadSome(in.weights + e * heads + h, heads - h), top);
        }
        Store<8>(max + h, top);
        Store<8>(sum + h, total);
      }
    }
  }

  void Add(const float* from, float* into) const {
    for (int64_t h = 0; h < heads; ++h) {
      const float top = std::max(from[h], into[h]);
      into[padded + h] = into[padded + h] * std::exp(into[h] - top) +
                         from[padded + h] * std::exp(from[h] - top);
      into[h] = top;
    }
  }

  // From the logits, which stand where the weights go, to weights.
  void Write(int64_t r, const float* state) const {
    for (int64_t h = 0; h < heads; h += 8) {
      const Vec<8> top = Load<8>(state + h), sum = Load<8>(state + padded + h);
      const Vec<8> share = sum == 0.0f ? Vec<8>{} : 1.0f / sum;
      for (int64_t e = in.rows.offsets[r]; e < in.rows.offsets[r + 1]; ++e) {
        float* at = in.weights + e * heads + h;
        Vec<8> weight = Weight(LoadSome(at, heads - h), top) * share;
        if (!in.edges.draws.empty()) {
          weight = Keep(in.edges, e, h) == 0.0f ? -weight : weight;
        }
        StoreSome(at, weight, heads - h);
      }
    }
  }

  static Vec<8> Weight(Vec<8> logit, Vec<8> top) {
    const Vec<8> weight = Exp<8>(logit - top);
    return logit <= kNothing ? Vec<8>{} : weight;
  }
};

struct GradientPass {
  const gtjax::SoftmaxGradient& in;
  const int64_t heads = in.rows.heads, padded = Padded(heads);

  struct Scratch {
    explicit Scratch(const GradientPass&) {}
  };

  // State: the sum of weights times their gradients, padded.
  int64_t state_size() const { return padded; }

  void Row(int64_t, int64_t first, int64_t last, float* state, Scratch&) const {
    for (int64_t h = 0; h < heads; h += 8) {
      Vec<8> sum{};
      for (int64_t e = first; e < last; ++e) {
        const int64_t at = e * heads + h;
        sum += Left(LoadSome(in.weights + at, heads - h)) * LoadSome(in.dweights + at, heads - h);
      }
      Store<8>(state + h, sum);
    }
  }

  void Add(const float* from, float* into) const {
    for (int64_t h = 0; h < heads; ++h) into[h] += from[h];
  }

  void Write(int64_t r, const float* state) const {
    const float factor = in.kept * in.factor;
    for (int64_t h = 0; h < heads; h += 8) {
      const Vec<8> sum = Load<8>(state + h);
      for (int64_t e = in.rows.offsets[r]; e < in.rows.offsets[r + 1]; ++e) {
        const int64_t at = e * heads + h;
        const Vec<8> weight = LoadSome(in.weights + at, heads - h);
        const Vec<8> dweight = LoadSome(in.dweights + at, heads - h);
        const Vec<8> size = weight < 0.0f ? -weight : weight;
        const Vec<8> kept = weight < 0.0f ? Vec<8>{} : dweight;
        StoreSome(in.dlogits + at, size * (kept - sum) * factor, heads - h);
      }
    }
  }
};

struct ReorderPass {
  const gtjax::Reorder& in;

  struct Scratch {
    explicit Scratch(const ReorderPass&) {}
  };

  int64_t state_size() const { return 0; }

  void Row(int64_t, int64_t first, int64_t last, float*, Scratch&) const {
    const int64_t heads = in.rows.heads, end = in.rows.offsets[in.rows.rows];
    for (int64_t e = first; e < last; ++e) {
      const int64_t other = in.order[e] * heads, own = e * heads;
      const int64_t later = in.order[std::min(e + 32, end - 1)] * heads;
      if (in.back) {
        __builtin_prefetch(in.to + later, 1);
        std::copy(in.from + own, in.from + own + heads, in.to + other);
      } else {
        __builtin_prefetch(in.from + later, 0);
        std::copy(in.from + other, in.from + other + heads, in.to + own);
      }
    }
  }

  void Add(const float*, float*) const {}
  void Write(int64_t, const float*) const {}
};

template <template <typename, typename> class Pass, typename In>
void Run(const In& in, const Table& gathered, const gtjax::Pool& pool) {
  ForShape<true>(in.rows.heads, in.rows.width, gathered.half, [&](auto shape, auto pointer) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(pointer)>>;
    RunInPieces(Pass<decltype(shape), T>{in, shape}, in.rows, pool);
  });
}

}  // namespace

extern const gtjax::PropagationPasses kPropagation;
const gtjax::PropagationPasses kPropagation = {
    [](const gtjax::SoftmaxWeights& in, const gtjax::Pool& pool) {
      Run<WeightsPass>(in, in.k, pool);
    },
    [](const gtjax::SoftmaxGradient& in, const gtjax::Pool& pool) {
      RunInPieces(GradientPass{in}, in.rows, pool);
    },
    [](const gtjax::Reorder& in, const gtjax::Pool& pool) {
      RunInPieces(ReorderPass{in}, in.rows, pool);
    },
};

}  // namespace GTJAX_VARIANT
