// The passes of `passes.h`, fused: a block of edges of one row at a time; nothing of the size of
// the edges is written but dbias. Rows of the tables are prefetched, since what bounds a pass is
// gathering them.
//
// Compiled once for each set of instructions, with GTJAX_VARIANT as its name.

#include "passes.h"

#include <algorithm>
#include <cmath>

#include "heads.h"
#include "pieces.h"

namespace GTJAX_VARIANT {
namespace {

template <typename Shape, typename T>
struct ForwardPass {
  const gtjax::Forward& in;
  const Shape shape;
  const int64_t heads = in.rows.heads, size = shape.size(), padded = Padded(heads);
  const float scale = 1.0f / std::sqrt(static_cast<float>(in.rows.width));

  struct Scratch {
    std::vector<float> q, shrink;
    Block<T> weights;
    explicit Scratch(const ForwardPass& pass)
        : q(pass.size), shrink(pass.padded), weights(pass.heads) {}
  };

  // State: the largest logits, the sums of weights (both padded), the weighted values.
  int64_t state_size() const { return 2 * padded + size; }

  void Row(int64_t r, int64_t first, int64_t last, float* state, Scratch& scratch) const {
    float *max = state, *sum = state + padded, *acc = state + 2 * padded;
    std::fill(max, max + padded, kNothing);
    std::fill(sum, sum + padded + size, 0.0f);
    if (first == last) return;
    const int32_t* send = in.rows.columns;
    const int64_t row_bytes = size * sizeof(T), ahead = Ahead(row_bytes);
    const int64_t end = in.rows.offsets[in.rows.rows];
    Block<T>& block = scratch.weights;
    shape.Copy(RowOf<T>(in.q, r, size), scale, scratch.q.data());
    for (int64_t start = first; start < last; start += kBlock) {
      const int64_t count = std::min<int64_t>(kBlock, last - start);
      for (int64_t b = 0; b < count; ++b) {
        const int64_t e = start + b, later = send[std::min(e + ahead, end - 1)];
        float* logits = block.of(b, heads);
        shape.Dots(scratch.q.data(), RowOf<T>(in.k, send[e], size), RowOf<T>(in.k, later, size),
                   logits);
        AddBias(in.edges, Position(in.edges, e), heads, logits);
        block.rows[b] = RowOf<T>(in.v, send[e], size);
        block.next[b] = RowOf<T>(in.v, later, size);
      }
      if (Softmax(start, count, start == first, block, max, sum, scratch.shrink.data())) {
        shape.Scale(scratch.shrink.data(), acc);
      }
      shape.AddScaled(block.of(0, heads), padded, block.rows, block.next, count, acc);
    }
  }

  // Turns a block's logits into weights; true if what was summed before has to shrink.
  bool Softmax(int64_t start, int64_t count, bool at_start, Block<T>& block, float* max,
               float* sum, float* shrink) const {
    bool shrinks = false;
    for (int64_t h = 0; h < padded; h += 8) {
      const Vec<8> before = Load<8>(max + h);
      Vec<8> top = before, total = Load<8>(sum + h);
      for (int64_t b = 0; b < count; ++b) {
        const Vec<8> logit = Load<8>(block.of(b, heads) + h);
        top = logit > top ? logit : top;
      }
      if (!at_start) {
        const Vec<8> factor = Exp<8>(before - top);
        const IntVec<8> changed = factor != 1.0f;
        for (int i = 0; i < 8; ++i) shrinks |= changed[i] != 0;
        Store<8>(shrink + h, factor);
        total *= factor;
      }
      for (int64_t b = 0; b < count; ++b) {
        float* at = block.of(b, heads) + h;
        const Vec<8> logit = Load<8>(at);
        Vec<8> weight = Exp<8>(logit - top);
        weight = logit <= kNothing ? Vec<8>{} : weight;
        total += weight;
        if (!in.edges.draws.empty()) {
          weight *= Keep(in.edges, Position(in.edges, start + b), h);
        }
        Store<8>(at, weight);
      }
      Store<8>(max + h, top);
      Store<8>(sum + h, total);
    }
    return shrinks;
  }

  void Add(const float* from, float* into) const {
    for (int64_t h = 0; h < heads; ++h) {
      const float top = std::max(from[h], into[h]);
      const float theirs = std::exp(from[h] - top), ours = std::exp(into[h] - top);
      into[h] = top;
      into[padded + h] = into[padded + h] * ours + from[padded + h] * theirs;
      for (int64_t i = 0; i < shape.width(); ++i) {
        const int64_t at = 2 * padded + h * shape.width() + i;
        into[at] = into[at] * ours + from[at] * theirs;
      }
    }
  }

  void Write(int64_t r, float* state) const {
    const float *max = state, *sum = state + padded;
    float* acc = state + 2 * padded;
    if (in.finish) {
      float* lse = in.max + r * heads;
      for (int64_t h = 0; h < heads; ++h) {
        lse[h] = sum[h] > 0 ? max[h] + std::log(sum[h]) : sum[h];  // NaN stays NaN
        state[h] = sum[h] == 0 ? 1.0f : 1.0f / sum[h];
      }
      shape.Scale(state, acc);
    } else {
      std::copy(max, max + heads, in.max + r * heads);
      std::copy(sum, sum + heads, in.sum + r * heads);
    }
    std::copy(acc, acc + size, in.acc + r * size);
  }
};

// Weights of a block of edges and the gradients of their logits, from logits and dweights.
inline void Gradients(const EdgeData& data, int64_t position, int64_t padded, const float* lse,
                      const float* delta, float* logits, float* dweights) {
  for (int64_t h = 0; h < padded; h += 8) {
    const Vec<8> logit = Load<8>(logits + h);
    Vec<8> weight = Exp<8>(logit - Load<8>(lse + h));
    weight = logit <= kNothing ? Vec<8>{} : weight;
    Vec<8> kept = weight, dweight = Load<8>(dweights + h);
    if (!data.draws.empty()) {
      const Vec<8> keep = Keep(data, position, h);
      kept *= keep;
      dweight *= keep;
    }
    Store<8>(logits + h, weight * (dweight - Load<8>(delta + h)));
    Store<8>(dweights + h, kept);
  }
}

template <typename Shape, typename T>
struct ReceiversPass {
  const gtjax::BackwardReceivers& in;
  const Shape shape;
  const int64_t heads = in.rows.heads, size = shape.size(), padded = Padded(heads);
  const float scale = 1.0f / std::sqrt(static_cast<float>(in.rows.width));

  struct Scratch {
    std::vector<float> q, dout, lse, delta;
    Block<T> logits, dweights;
    explicit Scratch(const ReceiversPass& pass)
        : q(pass.size), dout(pass.size), lse(pass.padded), delta(pass.padded),
          logits(pass.heads), dweights(pass.heads) {}
  };

  // State: dq.
  int64_t state_size() const { return size; }

  void Row(int64_t r, int64_t first, int64_t last, float* state, Scratch& scratch) const {
    std::fill(state, state + size, 0.0f);
    float *lse = scratch.lse.data(), *delta = scratch.delta.data();
    shape.Copy(RowOf<T>(in.dout, r, size), 1.0f, scratch.dout.data());
    shape.Dots(scratch.dout.data(), in.out + r * size, in.out + r * size, delta);
    std::copy(in.lse + r * heads, in.lse + (r + 1) * heads, lse);
    if (first == in.rows.offsets[r]) {
      std::copy(lse, lse + heads, in.stats + 2 * r * heads);
      std::copy(delta, delta + heads, in.stats + (2 * r + 1) * heads);
    }
    if (first == last) return;
    const int32_t* send = in.rows.columns;
    const int64_t row_bytes = size * sizeof(T), ahead = Ahead(row_bytes);
    const int64_t end = in.rows.offsets[in.rows.rows];
    shape.Copy(RowOf<T>(in.q, r, size), scale, scratch.q.data());
    for (int64_t start = first; start < last; start += kBlock) {
      const int64_t count = std::min<int64_t>(kBlock, last - start);
      for (int64_t b = 0; b < count; ++b) {
        const int64_t e = start + b, position = Position(in.edges, e);
        const int64_t later = send[std::min(e + ahead, end - 1)];
        float *logits = scratch.logits.of(b, heads), *dweights = scratch.dweights.of(b, heads);
        const T* key = scratch.logits.rows[b] = RowOf<T>(in.k, send[e], size);
        shape.Dots(scratch.q.data(), key, RowOf<T>(in.k, later, size), logits);
        shape.Dots(scratch.dout.data(), RowOf<T>(in.v, send[e], size),
                   RowOf<T>(in.v, later, size), dweights);
        AddBias(in.edges, position, heads, logits);
        Gradients(in.edges, position, padded, lse, delta, logits, dweights);
        if (in.dbias) std::copy(logits, logits + heads, in.dbias + position * heads);
      }
      shape.AddScaled(scratch.logits.of(0, heads), padded, scratch.logits.rows, kNoRows<T>, count,
                      state);
    }
  }

  void Add(const float* from, float* into) const {
    for (int64_t i = 0; i < size; ++i) into[i] += from[i];
  }

  void Write(int64_t r, const float* state) const { shape.Copy(state, scale, in.dq + r * size); }
};

template <typename Shape, typename T>
struct SendersPass {
  const gtjax::BackwardSenders& in;
  const Shape shape;
  const int64_t heads = in.rows.heads, size = shape.size(), padded = Padded(heads);
  const float scale = 1.0f / std::sqrt(static_cast<float>(in.rows.width));

  struct Scratch {
    std::vector<float> k, v, stats;
    Block<T> logits, dweights;
    explicit Scratch(const SendersPass& pass)
        : k(pass.size), v(pass.size), stats(2 * pass.padded),
          logits(pass.heads), dweights(pass.heads) {}
  };

  // State: dk, dv.
  int64_t state_size() const { return 2 * size; }

  void Row(int64_t r, int64_t first, int64_t last, float* state, Scratch& scratch) const {
    std::fill(state, state + 2 * size, 0.0f);
    if (first == last) return;
    const int32_t* recv = in.rows.columns;
    const int64_t row_bytes = size * sizeof(T), ahead = Ahead(row_bytes);
    const int64_t end = in.rows.offsets[in.rows.rows];
    shape.Copy(RowOf<T>(in.k, r, size), scale, scratch.k.data());
    shape.Copy(RowOf<T>(in.v, r, size), 1.0f, scratch.v.data());
    for (int64_t start = first; start < last; start += kBlock) {
      const int64_t count = std::min<int64_t>(kBlock, last - start);
      for (int64_t b = 0; b < count; ++b) {
        const int64_t e = start + b, position = Position(in.edges, e);
        const int64_t later = recv[std::min(e + ahead, end - 1)];
        Prefetch(in.stats + 2 * later * heads, 2 * heads * sizeof(float));
        float *logits = scratch.logits.of(b, heads), *dweights = scratch.dweights.of(b, heads);
        const T* q = scratch.logits.rows[b] = RowOf<T>(in.q, recv[e], size);
        const T* dout = scratch.dweights.rows[b] = RowOf<T>(in.dout, recv[e], size);
        shape.Dots(scratch.k.data(), q, RowOf<T>(in.q, later, size), logits);
        shape.Dots(scratch.v.data(), dout, RowOf<T>(in.dout, later, size), dweights);
        AddBias(in.edges, position, heads, logits);
        const float* lse = in.stats + 2 * int64_t{recv[e]} * heads;
        const float* delta = lse + heads;
        if (padded != heads) {  // vectors of 8 would read past the end
          float* copy = scratch.stats.data();
          std::copy(lse, lse + heads, copy);
          std::copy(delta, delta + heads, copy + padded);
          lse = copy, delta = copy + padded;
        }
        Gradients(in.edges, position, padded, lse, delta, logits, dweights);
      }
      shape.AddScaled(scratch.logits.of(0, heads), padded, scratch.logits.rows, kNoRows<T>, count,
                      state);
      shape.AddScaled(scratch.dweights.of(0, heads), padded, scratch.dweights.rows, kNoRows<T>,
                      count, state + size);
    }
  }

  void Add(const float* from, float* into) const {
    for (int64_t i = 0; i < 2 * size; ++i) into[i] += from[i];
  }

  void Write(int64_t r, const float* state) const {
    shape.Copy(state, scale, in.dk + r * size);
    shape.Copy(state + size, 1.0f, in.dv + r * size);
  }
};

template <typename Shape, typename T>
struct GatherPass {
  const gtjax::Gather& in;
  const Shape shape;
  const int64_t size = shape.size();

  struct Scratch {
    explicit Scratch(const GatherPass&) {}
  };

  int64_t state_size() const { return 1; }

  void Row(int64_t, int64_t first, int64_t last, float* state, Scratch&) const {
    const int32_t* send = in.rows.columns;
    const int64_t row_bytes = size * sizeof(T), ahead = Ahead(row_bytes);
    const int64_t end = in.rows.offsets[in.rows.rows];
    constexpr int L = kLanes;
    Vec<L> a{}, b{};
    state[0] = 0;
    for (int64_t e = first; e < last; ++e) {
      if (e + ahead < end) {
        Prefetch(RowOf<T>(in.k, send[e + ahead], size), row_bytes);
        Prefetch(RowOf<T>(in.v, send[e + ahead], size), row_bytes);
      }
      for (const T* row : {RowOf<T>(in.k, send[e], size),
                           RowOf<T>(in.v, send[e], size)}) {
        int64_t i = 0;
        for (; i + 2 * L <= size; i += 2 * L) {
          a += Load<L>(row + i), b += Load<L>(row + i + L);
        }
        for (; i < size; ++i) state[0] += Load<1>(row + i)[0];
      }
    }
    const Vec<L> all = a + b;
    for (int i = 0; i < L; ++i) state[0] += all[i];
  }

  void Add(const float* from, float* into) const { into[0] += from[0]; }
  void Write(int64_t r, const float* state) const { in.sums[r] = state[0]; }
};

template <template <typename, typename> class Pass, typename In>
void Run(const In& in, const gtjax::Pool& pool) {
  ForShape(in.rows.heads, in.rows.width, in.k.half, [&](auto shape, auto pointer) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(pointer)>>;
    RunInPieces(Pass<decltype(shape), T>{in, shape}, in.rows, pool);
  });
}

}  // namespace

extern const gtjax::Passes kPasses;
const gtjax::Passes kPasses = {
    Run<ForwardPass, gtjax::Forward>,
    Run<ReceiversPass, gtjax::BackwardReceivers>,
    Run<SendersPass, gtjax::BackwardSenders>,
    Run<GatherPass, gtjax::Gather>,
};

}  // namespace GTJAX_VARIANT
