// Arithmetic on the rows of the tables, which are a node's heads side by side, and on the bias and
// dropout of edges: what the passes over the edges are made of.

#ifndef GTJAX_HEADS_H_
#define GTJAX_HEADS_H_

#include <algorithm>
#include <array>
#include <type_traits>
#include <vector>

#include "passes.h"
#include "vectors.h"

namespace GTJAX_VARIANT {
namespace {  // each file its own copy: the compiler inlines those more freely

using gtjax::EdgeData;
using gtjax::Table;

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif
constexpr int kBlock = 16;         // edges per update of the softmax
constexpr int kTogether = 4;       // edges per reading and writing of a sum
constexpr int kAheadBytes = 6144;  // of one table, between prefetch and use
// Into the second level of the cache: the first has too few slots for lines on their way, and a
// prefetch that finds none free holds up the arithmetic.
constexpr int kIntoL2 = 2;

inline int64_t Padded(int64_t heads) { return (heads + 7) / 8 * 8; }

inline int64_t Ahead(int64_t row_bytes) {
  return std::clamp<int64_t>(kAheadBytes / row_bytes, 2, 16);
}

inline void Prefetch(const void* row, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) {
    __builtin_prefetch(static_cast<const char*>(row) + i, 0, kIntoL2);
  }
}

// The line that holds at[i], once for each line that a loop in steps of L comes through.
template <int L, typename T>
inline void PrefetchLine(const T* at, int64_t i) {
  constexpr int64_t kLine = 64 / sizeof(T);
  if (L >= kLine || i % kLine < L) __builtin_prefetch(at + i, 0, kIntoL2);
}

// How many numbers a function that loops call is to take at once: its first argument.
template <int N>
using Lanes = std::integral_constant<int, N>;

// A node's heads, each of D numbers (0: any width), in vectors of L lanes. L divides the width, or
// what is left over (kRest) is taken number by number.
template <int D, int L, bool kRest = false>
struct Heads {
  static constexpr int kMost = L < 8 ? L : 8;  // heads whose sums are taken together
  int64_t heads, any_width;
  int64_t width() const { return D ? D : any_width; }
  int64_t size() const { return heads * width(); }

  // f(Lanes, of_head(h), i) for all of the row: i is where the next numbers stand.
  template <typename H, typename F>
  void EachOfHeads(const H& of_head, const F& f) const {
    for (int64_t h = 0; h < heads; ++h) {
      const auto own = of_head(h);
      int64_t i = h * width();
      const int64_t end = i + width();
      if constexpr (kRest) {
        for (; i + L <= end; i += L) f(Lanes<L>{}, own, i);
        for (; i < end; ++i) f(Lanes<1>{}, own, i);
      } else {
        for (; i < end; i += L) f(Lanes<L>{}, own, i);
      }
    }
  }

  // f(Lanes, head, i) for all of the row.
  template <typename F>
  void Each(const F& f) const {
    EachOfHeads([](int64_t h) { return h; }, f);
  }

  // out[h] = sum over the head of term(Lanes, i).
  template <typename F>
  void Sums(const F& term, float* out) const {
    int64_t h = 0;
    for (; h + kMost <= heads; h += kMost) Sums<kMost>(term, out, h);
    if constexpr (kMost > 4) {
      if (h + 4 <= heads) Sums<4>(term, out, h), h += 4;
    }
    if constexpr (kMost > 2) {
      if (h + 2 <= heads) Sums<2>(term, out, h), h += 2;
    }
    if constexpr (kMost > 1) {
      if (h < heads) Sums<1>(term, out, h);
    }
  }

  // out[h] = a[h] . b[h], prefetching the row `next` line by line on the way: a burst of prefetches
  // would wait for free slots in the cache's queue, and the arithmetic with it.
  template <typename T>
  void Dots(const float* a, const T* b, const T* next, float* out) const {
    Sums(
        [&](auto lanes, int64_t i) {
          constexpr int N = decltype(lanes)::value;
          PrefetchLine<N>(next, i);
          return Load<N>(a + i) * Load<N>(b + i);
        },
        out);
  }

  // out[h] += sum over edges of weights[edge][h] * rows[edge][h]; prefetches the rows of `next` if
  // that is not null.
  template <typename T>
  void AddScaled(const float* weights, int64_t stride, const T* const* rows,
                 const T* const* next, int64_t count, float* out) const {
    int64_t e = 0;
    for (; e + kTogether <= count; e += kTogether) {
      AddScaled<kTogether>(weights + e * stride, stride, rows + e, next ? next + e : next, out);
    }
    for (; e < count; ++e) {
      AddScaled<1>(weights + e * stride, stride, rows + e, next ? next + e : next, out);
    }
  }

  void Scale(const float* factors, float* out) const {
    Each([&](auto lanes, int64_t h, int64_t i) {
      constexpr int N = decltype(lanes)::value;
      Store<N>(out + i, Load<N>(out + i) * factors[h]);
    });
  }

  template <typename T>
  void Copy(const T* from, float factor, float* to) const {
    Each([&](auto lanes, int64_t, int64_t i) {
      constexpr int N = decltype(lanes)::value;
      Store<N>(to + i, Load<N>(from + i) * factor);
    });
  }

 private:
  template <int G, typename F>
  void Sums(const F& term, float* out, int64_t h) const {
    static_assert(G <= L, "as many sums as lanes at most");
    Vec<L> sums[G];
    for (int g = 0; g < G; ++g) {
      const int64_t start = (h + g) * width(), end = start + width();
      if constexpr (kRest) {
        sums[g] = Vec<L>{};
        int64_t i = start;
        for (; i + L <= end; i += L) sums[g] += term(Lanes<L>{}, i);
        for (; i < end; ++i) sums[g][0] += term(Lanes<1>{}, i)[0];
      } else {
        sums[g] = term(Lanes<L>{}, start);
        for (int64_t i = start + L; i < end; i += L) sums[g] += term(Lanes<L>{}, i);
      }
    }
    const Vec<L> all = LaneSums<G, L>(sums);
    std::memcpy(out + h, &all, G * sizeof(float));
  }

  template <int E, typename T>
  void AddScaled(const float* weights, int64_t stride, const T* const* rows,
                 const T* const* next, float* out) const {
    auto of_head = [&](int64_t h) {  // copies: the compiler sees that writing leaves them alone
      std::array<float, E> scales;
      for (int e = 0; e < E; ++e) scales[e] = weights[e * stride + h];
      return scales;
    };
    EachOfHeads(of_head, [&](auto lanes, const auto& scales, int64_t i) {
      constexpr int N = decltype(lanes)::value;
      Vec<N> sum = Load<N>(out + i);
      for (int e = 0; e < E; ++e) {
        if (next) PrefetchLine<N>(next[e], i);
        sum += scales[e] * Load<N>(rows[e] + i);
      }
      Store<N>(out + i, sum);
    });
  }
};

// Calls run(Heads, null pointer of the type in the tables) with what fits. Every shape is compiled
// for each pass: kMany is for the passes that are worth it.
template <bool kMany, typename F>
void ForShape(int64_t heads, int64_t width, bool half, const F& run) {
  auto with = [&](auto shape) {
    if (half) run(shape, static_cast<const uint16_t*>(nullptr));
    else run(shape, static_cast<const float*>(nullptr));
  };
  constexpr int kEight = kLanes < 8 ? kLanes : 8;
  if (width == 8) return with(Heads<8, kEight>{heads, width});
  if constexpr (kMany) {
    if (width == 32) return with(Heads<32, kLanes>{heads, width});
    if (width % 4 == 0 && width % kLanes) return with(Heads<0, 4>{heads, width});
  }
  if (width == 16) return with(Heads<16, kLanes>{heads, width});
  if (width % kLanes == 0) return with(Heads<0, kLanes>{heads, width});
  return with(Heads<0, kEight, true>{heads, width});
}

template <typename T>
const T* RowOf(const Table& table, int64_t row, int64_t size) {
  return static_cast<const T*>(table.data) + row * size;
}

inline void AddBias(const EdgeData& data, int64_t position, int64_t heads, float* logits) {
  if (data.bias) {
    for (int64_t h = 0; h < heads; ++h) logits[h] += data.bias[position * heads + h];
  }
}

inline int64_t Position(const EdgeData& data, int64_t edge) {
  return data.order ? data.order[edge] : edge;
}

// What is looked up by the position of an edge, where positions are not in order.
inline void PrefetchEdge(const EdgeData& data, int64_t edge, int64_t heads) {
  if (!data.order) return;
  const int64_t position = data.order[edge];
  if (data.bias) Prefetch(data.bias + position * heads, heads * sizeof(float));
  if (!data.draws.empty()) __builtin_prefetch(data.ids + position, 0, kIntoL2);
}

// 0 where an edge's head is dropped and 1 / (1 - rate) where not, for 8 heads.
inline Vec<8> Keep(const EdgeData& data, int64_t position, int64_t h) {
  WordVec<8> draws;
  std::memcpy(&draws, data.draws.data() + h, sizeof(draws));
  const WordVec<8> bits = Scramble<8>(draws ^ data.ids[position]);
  return bits >= data.threshold ? Vec<8>{} + data.kept : Vec<8>{};
}

template <typename T>
constexpr const T* const* kNoRows = nullptr;

// Numbers for a block of edges, [kBlock, padded heads], and the rows of a table they go with.
template <typename T>
struct Block {
  std::vector<float> numbers;
  const T *rows[kBlock], *next[kBlock];
  explicit Block(int64_t heads) : numbers(kBlock * Padded(heads)) {}
  float* of(int64_t edge, int64_t heads) { return numbers.data() + edge * Padded(heads); }
  const float* of(int64_t edge, int64_t heads) const {
    return numbers.data() + edge * Padded(heads);
  }
};

}  // namespace
}  // namespace GTJAX_VARIANT

#endif  // GTJAX_HEADS_H_
