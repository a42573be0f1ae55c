// The passes of `softmax.h`, fused: a block of edges of one row at a time; nothing of the size of
// the edges is written but their own gradients. Rows of the tables are prefetched, since what bounds
// a pass is gathering them. Each pass is one template over the scores of `scores.h`.
//
// Compiled once for each set of instructions, with GTJAX_VARIANT as its name.

#include "softmax.h"

#include <algorithm>
#include <cmath>

#include "heads.h"
#include "pieces.h"
#include "scores.h"

namespace GTJAX_VARIANT {
namespace {

template <typename Type>
struct Tag {
  using type = Type;
};

template <typename Score, typename Shape, typename T>
struct ForwardPass {
  const gtjax::Forward& in;
  const Shape shape;
  const Score score{in.scoring, in.edges, shape};
  const int64_t heads = in.rows.heads, size = shape.size(), padded = Padded(heads);

  struct Scratch {
    std::vector<float> own, shrink;
    Block<T> weights;
    explicit Scratch(const ForwardPass& pass)
        : own(pass.score.own_size()), shrink(pass.padded), weights(pass.heads) {}
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
    score.Take(in.own, r, scratch.own.data());
    for (int64_t start = first; start < last; start += kBlock) {
      const int64_t count = std::min<int64_t>(kBlock, last - start);
      for (int64_t b = 0; b < count; ++b) {
        const int64_t e = start + b, later = send[std::min(e + ahead, end - 1)];
        score.Logits(scratch.own.data(), score.Row(in.far, send[e]), score.Row(in.far, later),
                     Position(in.edges, e), block.of(b, heads));
        block.rows[b] = RowOf<T>(in.values, send[e], size);
        block.next[b] = RowOf<T>(in.values, later, size);
      }
      if (Softmax(start, count, start == first, block, max, sum, scratch.shrink.data())) {
        shape.Scale(scratch.shrink.data(), acc);
      }
      const T* const* next = Score::kSharesRows ? kNoRows<T> : block.next;
      shape.AddScaled(block.of(0, heads), padded, block.rows, next, count, acc);
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

template <typename Score, typename Shape, typename T>
struct ReceiversPass {
  const gtjax::BackwardReceivers& in;
  const Shape shape;
  std::vector<float>& d_shared;  // [kPieces, size]: what each piece has to say about it
  const Score score{in.scoring, in.edges, shape};
  const int64_t heads = in.rows.heads, size = shape.size(), padded = Padded(heads);

  struct Scratch {
    std::vector<float> own, dout, lse, delta, row_shared, d_shared;
    Block<typename Score::Far> logits;
    Block<T> dweights;
    explicit Scratch(const ReceiversPass& pass)
        : own(pass.score.own_size()), dout(pass.size), lse(pass.padded), delta(pass.padded),
          row_shared(pass.in.d_shared ? pass.size : 0), d_shared(row_shared.size()),
          logits(pass.heads), dweights(pass.heads) {}
  };

  // State: the gradient of the row.
  int64_t state_size() const { return score.own_size(); }

  void Row(int64_t r, int64_t first, int64_t last, float* state, Scratch& scratch) const {
    std::fill(state, state + state_size(), 0.0f);
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
    // Summed up row by row: one long sum would lose more.
    float* row_shared = in.d_shared ? scratch.row_shared.data() : nullptr;
    std::fill(scratch.row_shared.begin(), scratch.row_shared.end(), 0.0f);
    int64_t positions[kBlock];
    score.Take(in.own, r, scratch.own.data());
    for (int64_t start = first; start < last; start += kBlock) {
      const int64_t count = std::min<int64_t>(kBlock, last - start);
      for (int64_t b = 0; b < count; ++b) {
        const int64_t e = start + b, position = positions[b] = Position(in.edges, e);
        const int64_t later = send[std::min(e + ahead, end - 1)];
        float *logits = scratch.logits.of(b, heads), *dweights = scratch.dweights.of(b, heads);
        const auto* far = scratch.logits.rows[b] = score.Row(in.far, send[e]);
        score.Logits(scratch.own.data(), far, score.Row(in.far, later), position, logits);
        const T* value = RowOf<T>(in.values, send[e], size);
        const T* next = Score::kSharesRows ? value : RowOf<T>(in.values, later, size);
        shape.Dots(scratch.dout.data(), value, next, dweights);
        Gradients(in.edges, position, padded, lse, delta, logits, dweights);
      }
      score.Gradient(scratch.own.data(), scratch.logits, positions, count, state, in.d_edge,
                     row_shared);
    }
    for (size_t i = 0; i < scratch.d_shared.size(); ++i) scratch.d_shared[i] += row_shared[i];
  }

  void Add(const float* from, float* into) const {
    for (int64_t i = 0; i < state_size(); ++i) into[i] += from[i];
  }

  void Write(int64_t r, const float* state) const {
    score.Write(state, in.d_own + (score.Row(in.own, r) - score.Row(in.own, 0)));
  }

  void EndPiece(int64_t piece, Scratch& scratch) const {
    std::copy(scratch.d_shared.begin(), scratch.d_shared.end(), d_shared.begin() + piece * size);
  }
};

template <typename Score, typename Shape, typename T>
struct SendersPass {
  const gtjax::BackwardSenders& in;
  const Shape shape;
  const Score score{in.scoring, in.edges, shape};
  const int64_t heads = in.rows.heads, size = shape.size(), padded = Padded(heads);
  // Where the gradient of values stands in the state: with that of the row, if they are the same.
  const int64_t values = Score::kSharesRows ? 0 : score.own_size();

  struct Scratch {
    std::vector<float> own, values, stats;
    Block<typename Score::Far> logits;
    Block<T> dweights;
    explicit Scratch(const SendersPass& pass)
        : own(pass.score.own_size()), values(pass.size), stats(2 * pass.padded),
          logits(pass.heads), dweights(pass.heads) {}
  };

  // State: the gradients of the row and of its values.
  int64_t state_size() const { return values + size; }

  void Row(int64_t r, int64_t first, int64_t last, float* state, Scratch& scratch) const {
    std::fill(state, state + state_size(), 0.0f);
    if (first == last) return;
    const int32_t* recv = in.rows.columns;
    const int64_t row_bytes = size * sizeof(T), ahead = Ahead(row_bytes);
    const int64_t end = in.rows.offsets[in.rows.rows];
    int64_t positions[kBlock];
    score.Take(in.own, r, scratch.own.data());
    shape.Copy(RowOf<T>(in.values, r, size), 1.0f, scratch.values.data());
    for (int64_t start = first; start < last; start += kBlock) {
      const int64_t count = std::min<int64_t>(kBlock, last - start);
      for (int64_t b = 0; b < count; ++b) {
        const int64_t e = start + b, position = positions[b] = Position(in.edges, e);
        const int64_t next = std::min(e + ahead, end - 1), later = recv[next];
        Prefetch(in.stats + 2 * later * heads, 2 * heads * sizeof(float));
        PrefetchEdge(in.edges, next, heads);
        if (in.scoring.features.data) {
          Prefetch(RowOf<T>(in.scoring.features, Position(in.edges, next), size), row_bytes);
        }
        float *logits = scratch.logits.of(b, heads), *dweights = scratch.dweights.of(b, heads);
        const auto* far = scratch.logits.rows[b] = score.Row(in.far, recv[e]);
        const T* dout = scratch.dweights.rows[b] = RowOf<T>(in.dout, recv[e], size);
        score.Logits(scratch.own.data(), far, score.Row(in.far, later), position, logits);
        shape.Dots(scratch.values.data(), dout, RowOf<T>(in.dout, later, size), dweights);
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
      score.Gradient(scratch.own.data(), scratch.logits, positions, count, state, nullptr, nullptr);
      shape.AddScaled(scratch.dweights.of(0, heads), padded, scratch.dweights.rows, kNoRows<T>,
                      count, state + values);
    }
  }

  void Add(const float* from, float* into) const {
    for (int64_t i = 0; i < state_size(); ++i) into[i] += from[i];
  }

  void Write(int64_t r, const float* state) const {
    score.Write(state, in.d_own + (score.Row(in.own, r) - score.Row(in.own, 0)));
    if (!Score::kSharesRows) shape.Copy(state + values, 1.0f, in.d_values + r * size);
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
    const Table tables[2] = {in.tables.front(), in.tables.back()};
    const int64_t count = in.tables.size();
    for (int64_t e = first; e < last; ++e) {
      for (int64_t t = 0; t < count && e + ahead < end; ++t) {
        Prefetch(RowOf<T>(tables[t], send[e + ahead], size), row_bytes);
      }
      for (int64_t t = 0; t < count; ++t) {
        const T* row = RowOf<T>(tables[t], send[e], size);
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

// Calls run(score, shape, null pointer of the type in the tables) with what fits.
template <bool kMany, template <typename, typename> class Score, typename In, typename F>
void ForScore(const In& in, const F& run) {
  ForShape<kMany>(in.rows.heads, in.rows.width, in.values.half, [&](auto shape, auto pointer) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(pointer)>>;
    run(Tag<Score<decltype(shape), T>>{}, shape, pointer);
  });
}

template <typename In, typename F>
void ForScore(const In& in, const F& run) {
  switch (in.scoring.score) {
    case gtjax::Score::kDotProduct: return ForScore<true, DotProduct>(in, run);
    case gtjax::Score::kGat: return ForScore<false, Gat>(in, run);
    case gtjax::Score::kGatv2: return ForScore<false, Gatv2>(in, run);
  }
}

void RunForward(const gtjax::Forward& in, const gtjax::Pool& pool) {
  ForScore(in, [&](auto score, auto shape, auto pointer) {
    using Score = typename decltype(score)::type;
    using T = std::remove_const_t<std::remove_pointer_t<decltype(pointer)>>;
    RunInPieces(ForwardPass<Score, decltype(shape), T>{in, shape}, in.rows, pool);
  });
}

void RunReceivers(const gtjax::BackwardReceivers& in, const gtjax::Pool& pool) {
  const int64_t size = in.rows.heads * in.rows.width;
  std::vector<float> d_shared(in.d_shared ? kPieces * size : 0);
  ForScore(in, [&](auto score, auto shape, auto pointer) {
    using Score = typename decltype(score)::type;
    using T = std::remove_const_t<std::remove_pointer_t<decltype(pointer)>>;
    RunInPieces(ReceiversPass<Score, decltype(shape), T>{in, shape, d_shared}, in.rows, pool);
  });
  if (!in.d_shared) return;
  for (int64_t i = 0; i < size; ++i) {
    double sum = 0;  // in order of the pieces, which do not depend on the threads
    for (int64_t piece = 0; piece < kPieces; ++piece) sum += d_shared[piece * size + i];
    in.d_shared[i] = static_cast<float>(sum);
  }
}

void RunSenders(const gtjax::BackwardSenders& in, const gtjax::Pool& pool) {
  ForScore(in, [&](auto score, auto shape, auto pointer) {
    using Score = typename decltype(score)::type;
    using T = std::remove_const_t<std::remove_pointer_t<decltype(pointer)>>;
    RunInPieces(SendersPass<Score, decltype(shape), T>{in, shape}, in.rows, pool);
  });
}

void RunGather(const gtjax::Gather& in, const gtjax::Pool& pool) {
  ForShape<false>(in.rows.heads, in.rows.width, in.tables[0].half, [&](auto shape, auto pointer) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(pointer)>>;
    RunInPieces(GatherPass<decltype(shape), T>{in, shape}, in.rows, pool);
  });
}

}  // namespace

extern const gtjax::SoftmaxPasses kSoftmax;
const gtjax::SoftmaxPasses kSoftmax = {RunForward, RunReceivers, RunSenders, RunGather};

}  // namespace GTJAX_VARIANT
