// Vectors of floats, by the compiler's own extension (GCC and Clang): as wide as asked for, and
// split into what the processor has.

#ifndef GTJAX_VECTORS_H_
#define GTJAX_VECTORS_H_

#include <cstdint>
#include <cstring>
#include <utility>

namespace GTJAX_VARIANT {

template <typename T, int L>
struct VectorOf {
  typedef T type __attribute__((vector_size(L * sizeof(T))));
};
template <int L>
using Vec = typename VectorOf<float, L>::type;
template <int L>
using IntVec = typename VectorOf<int32_t, L>::type;
template <int L>
using WordVec = typename VectorOf<uint32_t, L>::type;

constexpr float kNothing = -3.4028234663852886e38f / 2;  // as in reductions.py

template <int L>
inline Vec<L> Load(const float* from) {
  Vec<L> x;
  std::memcpy(&x, from, sizeof(x));
  return x;
}

// bfloat16: the upper half of a float.
template <int L>
inline Vec<L> Load(const uint16_t* from) {
  typename VectorOf<uint16_t, L>::type half;
  std::memcpy(&half, from, sizeof(half));
  return (Vec<L>)(__builtin_convertvector(half, WordVec<L>) << 16);
}

template <int L>
inline void Store(float* to, Vec<L> x) {
  std::memcpy(to, &x, sizeof(x));
}

// Pairs of neighbours added: those of a, then those of b.
template <int L, int... I>
inline Vec<L> PairSums(Vec<L> a, Vec<L> b, std::integer_sequence<int, I...>) {
#if defined(__clang__)
  return __builtin_shufflevector(a, b, (2 * I)...) + __builtin_shufflevector(a, b, (2 * I + 1)...);
#else
  return __builtin_shuffle(a, b, IntVec<L>{(2 * I)...}) +
         __builtin_shuffle(a, b, IntVec<L>{(2 * I + 1)...});
#endif
}
template <int L>
inline Vec<L> PairSums(Vec<L> a, Vec<L> b) {
  return PairSums<L>(a, b, std::make_integer_sequence<int, L>());
}

// Sums over the lanes of each of G vectors (a power of two, at most L), in the first G lanes.
template <int G, int L>
inline Vec<L> LaneSums(Vec<L>* x) {
  for (int n = G; n > 1; n /= 2) {
    for (int i = 0; i < n / 2; ++i) x[i] = PairSums<L>(x[2 * i], x[2 * i + 1]);
  }
  for (int lanes = L; lanes > G; lanes /= 2) x[0] = PairSums<L>(x[0], x[0]);
  return x[0];
}

// exp to within 2 ulp, without a branch. NaN stays NaN.
template <int L>
inline Vec<L> Exp(Vec<L> x) {
  x = x < -87.0f ? Vec<L>{} - 87.0f : x;
  x = x > 88.0f ? Vec<L>{} + 88.0f : x;
  const Vec<L> n = (x * 1.44269504f + 12582912.0f) - 12582912.0f;
  const Vec<L> r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  Vec<L> p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const IntVec<L> exponent = __builtin_convertvector(n, IntVec<L>) << 23;
  const Vec<L> y = (Vec<L>)((IntVec<L>)p + exponent);
  return x == x ? y : x;
}

template <int L>
inline WordVec<L> Scramble(WordVec<L> x) {
  x = (x ^ (x >> 16)) * 0x7FEB352Du;
  x = (x ^ (x >> 15)) * 0x846CA68Bu;
  return x ^ (x >> 16);
}

}  // namespace GTJAX_VARIANT

#endif  // GTJAX_VECTORS_H_
