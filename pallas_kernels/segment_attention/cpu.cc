// Attention over edges on the CPU: one fused pass over compressed rows, forward and backward.
//
// Forward: scores, online softmax and weighted sum of a row, a block of edges at a time; nothing
// of the size of the edges is written. Backward: recomputes the weights from lse, by receiver for
// dq and dbias, by sender for dk and dv, so no two threads ever write to the same row and results
// do not depend on how many threads there are. Rows of k and v are prefetched, since the pass is
// bound by gathering them.
//
// Work runs on XLA's own thread pool, in pieces of equal numbers of edges. The calling thread
// takes pieces too, so it makes progress even if every other thread of the pool is busy.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

using Floats = ffi::Buffer<ffi::F32>;
using Ints = ffi::Buffer<ffi::S32>;
using Words = ffi::Buffer<ffi::U32>;
using FloatsOut = ffi::ResultBuffer<ffi::F32>;

constexpr float kNothing = -3.4028234663852886e38f / 2;  // as in types.py
constexpr int64_t kBlock = 16;                           // edges per update of the softmax
constexpr int64_t kAhead = 8;                            // edges between prefetch and use

// exp to within 2 ulp, without a branch, so that loops over it become vectors.
inline float Exp(float x) {
  x = std::min(std::max(x, -87.0f), 88.0f);
  const float shifted = x * 1.44269504f + 12582912.0f;
  const float n = shifted - 12582912.0f;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  int32_t bits;
  std::memcpy(&bits, &p, 4);
  bits += static_cast<int32_t>(n) << 23;
  std::memcpy(&p, &bits, 4);
  return p;
}

inline uint32_t Scramble(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7FEB352Du;
  x = (x ^ (x >> 15)) * 0x846CA68Bu;
  return x ^ (x >> 16);
}

// Bias and dropout of single edges, by their position in receiver order.
struct EdgeData {
  const float* bias;      // [edges, heads], or null
  const uint32_t* ids;    // [edges]
  std::vector<uint32_t> draws;  // one per head; empty if nothing is dropped
  uint32_t threshold = 0;
  float kept = 1.0f;

  EdgeData(const Floats& bias_eh, const Words& ids_e, const Words& seed, double rate,
           int64_t heads)
      : bias(bias_eh.element_count() ? bias_eh.typed_data() : nullptr), ids(ids_e.typed_data()) {
    if (rate <= 0) return;
    threshold = static_cast<uint32_t>(std::min(rate * 4294967296.0, 4294967295.0));
    kept = static_cast<float>(1.0 / (1.0 - rate));
    for (int64_t h = 0; h < heads; ++h) {
      const uint32_t head = static_cast<uint32_t>(h) * 0x9E3779B9u;
      draws.push_back(Scramble(head + seed.typed_data()[0]));
    }
  }
  bool drops() const { return !draws.empty(); }
  float Keep(int64_t position, int64_t h) const {
    return Scramble(ids[position] ^ draws[h]) >= threshold ? kept : 0.0f;
  }
};

inline void PrefetchRow(const float* row, int64_t size) {
  for (int64_t i = 0; i < size; i += 16) __builtin_prefetch(row + i);
}

// Head width D, known to the compiler where it is a common one (0: any).
template <int D>
struct Heads {
  int64_t heads, any_width;
  int64_t width() const { return D ? D : any_width; }
  int64_t size() const { return heads * width(); }

  void Dots(const float* a, const float* b, float* out) const {
    for (int64_t h = 0; h < heads; ++h) {
      const float *x = a + h * width(), *y = b + h * width();
      float sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t i = 0; i < width(); ++i) sum += x[i] * y[i];
      out[h] = sum;
    }
  }
  void AddScaled(const float* weights, const float* rows, float* out) const {
    for (int64_t h = 0; h < heads; ++h) {
      const float w = weights[h];
      const float* x = rows + h * width();
      float* y = out + h * width();
#pragma omp simd
      for (int64_t i = 0; i < width(); ++i) y[i] += w * x[i];
    }
  }
};

// Runs work(first row, last row, scratch) over pieces of about equal numbers of edges.
template <typename F>
void InParallel(ffi::ThreadPool& pool, const int32_t* offsets, int64_t rows, const F& work) {
  const int64_t edges = offsets[rows];
  const int64_t threads = std::max<int64_t>(1, pool.num_threads());
  const int64_t cost = edges + rows;  // an empty row still has to be written
  const int64_t pieces =
      threads == 1 ? 1 : std::clamp<int64_t>(cost / 2048, 1, 16 * threads);
  struct Shared {
    std::atomic<int64_t> next{0}, done{0};
  };
  auto shared = std::make_shared<Shared>();
  auto start_of = [=](int64_t piece) {
    const int64_t wanted = cost * piece / pieces;  // first row with offsets[row] + row >= wanted
    int64_t low = 0, high = rows;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (offsets[middle] + middle < wanted) low = middle + 1; else high = middle;
    }
    return low;
  };
  auto take = [=, &work] {
    for (int64_t piece; (piece = shared->next.fetch_add(1)) < pieces;) {
      work(start_of(piece), piece + 1 == pieces ? rows : start_of(piece + 1));
      shared->done.fetch_add(1, std::memory_order_release);
    }
  };
  for (int64_t i = 1; i < std::min(threads, pieces); ++i) pool.Schedule([take] { take(); });
  take();
  while (shared->done.load(std::memory_order_acquire) < pieces) std::this_thread::yield();
}

template <typename F>
void ForWidth(int64_t heads, int64_t width, const F& run) {
  switch (width) {
    case 4: return run(Heads<4>{heads, width});
    case 8: return run(Heads<8>{heads, width});
    case 16: return run(Heads<16>{heads, width});
    case 32: return run(Heads<32>{heads, width});
    case 64: return run(Heads<64>{heads, width});
    case 128: return run(Heads<128>{heads, width});
    default: return run(Heads<0>{heads, width});
  }
}

ffi::Error Check(const Floats& q, const Floats& k, const Floats& v, const Ints& offsets) {
  const auto qs = q.dimensions(), ks = k.dimensions(), vs = v.dimensions();
  if (qs.size() != 3 || ks.size() != 3 || vs.size() != 3 || qs[1] != ks[1] || qs[2] != ks[2] ||
      !std::equal(ks.begin(), ks.end(), vs.begin()) || offsets.element_count() < 1) {
    return ffi::Error::InvalidArgument("q, k and v are [rows, heads, width] and agree");
  }
  return ffi::Error::Success();
}

ffi::Error Forward(ffi::ThreadPool pool, Floats q, Floats k, Floats v, Ints offsets, Ints senders,
                   Words ids, Floats bias, Words seed, FloatsOut max, FloatsOut sum, FloatsOut acc,
                   double rate) {
  if (auto error = Check(q, k, v, offsets); error.failure()) return error;
  const int64_t rows = q.dimensions()[0], heads = q.dimensions()[1], width = q.dimensions()[2];
  const EdgeData data(bias, ids, seed, rate, heads);
  const int32_t *off = offsets.typed_data(), *send = senders.typed_data();
  const float scale = 1.0f / std::sqrt(static_cast<float>(width));
  ForWidth(heads, width, [&](auto op) {
    const int64_t size = op.size();
    const float *qs = q.typed_data(), *ks = k.typed_data(), *vs = v.typed_data();
    float *maxs = max->typed_data(), *sums = sum->typed_data(), *accs = acc->typed_data();
    const int64_t edges = off[rows];
    InParallel(pool, off, rows, [&](int64_t first, int64_t last) {
      std::vector<float> scaled(size), logits(kBlock * heads), kept(kBlock * heads);
      for (int64_t r = first; r < last; ++r) {
        float *m = maxs + r * heads, *l = sums + r * heads, *a = accs + r * size;
        std::fill(m, m + heads, kNothing);
        std::fill(l, l + heads, 0.0f);
        std::fill(a, a + size, 0.0f);
        for (int64_t i = 0; i < size; ++i) scaled[i] = qs[r * size + i] * scale;
        for (int64_t start = off[r]; start < off[r + 1]; start += kBlock) {
          const int64_t count = std::min<int64_t>(kBlock, off[r + 1] - start);
          for (int64_t b = 0; b < count; ++b) {
            const int64_t e = start + b;
            if (e + kAhead < edges) PrefetchRow(ks + send[e + kAhead] * size, size);
            PrefetchRow(vs + send[e] * size, size);
            float* s = &logits[b * heads];
            op.Dots(scaled.data(), ks + send[e] * size, s);
            if (data.bias) {
              for (int64_t h = 0; h < heads; ++h) s[h] += data.bias[e * heads + h];
            }
            for (int64_t h = 0; h < heads; ++h) s[h] = std::max(s[h], kNothing);
          }
          for (int64_t h = 0; h < heads; ++h) {
            float top = m[h];
            for (int64_t b = 0; b < count; ++b) top = std::max(top, logits[b * heads + h]);
            const float shrink = Exp(m[h] - top);
            m[h] = top;
            if (shrink != 1.0f) {
              l[h] *= shrink;
              for (int64_t i = 0; i < op.width(); ++i) a[h * op.width() + i] *= shrink;
            }
          }
          for (int64_t b = 0; b < count; ++b) {
            float* s = &logits[b * heads];
#pragma omp simd
            for (int64_t h = 0; h < heads; ++h) {
              const float w = s[h] <= kNothing ? 0.0f : Exp(s[h] - m[h]);  // NaN stays NaN
              l[h] += w;
              s[h] = w;
            }
            if (data.drops()) {
              for (int64_t h = 0; h < heads; ++h) s[h] *= data.Keep(start + b, h);
            }
            op.AddScaled(s, vs + send[start + b] * size, a);
          }
        }
      }
    });
  });
  return ffi::Error::Success();
}

// dq and dbias, and the sum over a row of weight times its gradient (delta) for the other pass.
ffi::Error BackwardReceivers(ffi::ThreadPool pool, Floats q, Floats k, Floats v, Ints offsets,
                             Ints senders, Words ids, Floats bias, Words seed, Floats out,
                             Floats lse, Floats dout, FloatsOut dq, FloatsOut delta,
                             FloatsOut dbias, double rate) {
  if (auto error = Check(q, k, v, offsets); error.failure()) return error;
  const int64_t rows = q.dimensions()[0], heads = q.dimensions()[1], width = q.dimensions()[2];
  const EdgeData data(bias, ids, seed, rate, heads);
  const int32_t *off = offsets.typed_data(), *send = senders.typed_data();
  const float scale = 1.0f / std::sqrt(static_cast<float>(width));
  float* dbiases = data.bias ? dbias->typed_data() : nullptr;
  ForWidth(heads, width, [&](auto op) {
    const int64_t size = op.size(), edges = off[rows];
    const float *qs = q.typed_data(), *ks = k.typed_data(), *vs = v.typed_data();
    InParallel(pool, off, rows, [&](int64_t first, int64_t last) {
      std::vector<float> scaled(size), s(heads), w(heads);
      for (int64_t r = first; r < last; ++r) {
        float *d = dq->typed_data() + r * size, *sums = delta->typed_data() + r * heads;
        const float* g = dout.typed_data() + r * size;
        const float* z = lse.typed_data() + r * heads;
        std::fill(d, d + size, 0.0f);
        op.Dots(g, out.typed_data() + r * size, sums);
        for (int64_t i = 0; i < size; ++i) scaled[i] = qs[r * size + i] * scale;
        for (int64_t e = off[r]; e < off[r + 1]; ++e) {
          if (e + kAhead < edges) {
            PrefetchRow(ks + send[e + kAhead] * size, size);
            PrefetchRow(vs + send[e + kAhead] * size, size);
          }
          const float* key = ks + send[e] * size;
          op.Dots(scaled.data(), key, s.data());
          op.Dots(g, vs + send[e] * size, w.data());
          for (int64_t h = 0; h < heads; ++h) {
            const float logit = s[h] + (data.bias ? data.bias[e * heads + h] : 0.0f);
            const float keep = data.drops() ? data.Keep(e, h) : 1.0f;
            const float p = logit <= kNothing ? 0.0f : Exp(logit - z[h]);
            s[h] = p * (w[h] * keep - sums[h]);
            if (dbiases) dbiases[e * heads + h] = s[h];
          }
          op.AddScaled(s.data(), key, d);
        }
        for (int64_t i = 0; i < size; ++i) d[i] *= scale;
      }
    });
  });
  return ffi::Error::Success();
}

// dk and dv: offsets and receivers are of the edges sorted by sender, whose positions in receiver
// order are `order`.
ffi::Error BackwardSenders(ffi::ThreadPool pool, Floats q, Floats k, Floats v, Ints offsets,
                           Ints receivers, Ints order, Words ids, Floats bias, Words seed,
                           Floats lse, Floats delta, Floats dout, FloatsOut dk, FloatsOut dv,
                           double rate) {
  if (auto error = Check(q, k, v, offsets); error.failure()) return error;
  const int64_t rows = k.dimensions()[0], heads = q.dimensions()[1], width = q.dimensions()[2];
  const EdgeData data(bias, ids, seed, rate, heads);
  const int32_t *off = offsets.typed_data(), *recv = receivers.typed_data();
  const float scale = 1.0f / std::sqrt(static_cast<float>(width));
  ForWidth(heads, width, [&](auto op) {
    const int64_t size = op.size(), edges = off[rows];
    const float *qs = q.typed_data(), *gs = dout.typed_data();
    InParallel(pool, off, rows, [&](int64_t first, int64_t last) {
      std::vector<float> scaled(size), s(heads), w(heads);
      for (int64_t r = first; r < last; ++r) {
        float *x = dk->typed_data() + r * size, *y = dv->typed_data() + r * size;
        const float* value = v.typed_data() + r * size;
        std::fill(x, x + size, 0.0f);
        std::fill(y, y + size, 0.0f);
        for (int64_t i = 0; i < size; ++i) scaled[i] = k.typed_data()[r * size + i] * scale;
        for (int64_t e = off[r]; e < off[r + 1]; ++e) {
          if (e + kAhead < edges) {
            PrefetchRow(qs + recv[e + kAhead] * size, size);
            PrefetchRow(gs + recv[e + kAhead] * size, size);
          }
          const int64_t i = recv[e], position = order.typed_data()[e];
          const float* g = gs + i * size;
          op.Dots(scaled.data(), qs + i * size, s.data());
          op.Dots(value, g, w.data());
          for (int64_t h = 0; h < heads; ++h) {
            const float logit = s[h] + (data.bias ? data.bias[position * heads + h] : 0.0f);
            const float keep = data.drops() ? data.Keep(position, h) : 1.0f;
            const float p =
                logit <= kNothing ? 0.0f : Exp(logit - lse.typed_data()[i * heads + h]);
            s[h] = p * (w[h] * keep - delta.typed_data()[i * heads + h]);
            w[h] = p * keep;
          }
          op.AddScaled(s.data(), qs + i * size, x);
          op.AddScaled(w.data(), g, y);
        }
        for (int64_t i = 0; i < size; ++i) x[i] *= scale;
      }
    });
  });
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(gtjax_attention_forward, Forward,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<Floats>()  // q
                                  .Arg<Floats>()  // k
                                  .Arg<Floats>()  // v
                                  .Arg<Ints>()    // offsets
                                  .Arg<Ints>()    // senders
                                  .Arg<Words>()   // edge ids
                                  .Arg<Floats>()  // bias
                                  .Arg<Words>()   // seed
                                  .Ret<Floats>()  // max
                                  .Ret<Floats>()  // sum
                                  .Ret<Floats>()  // acc
                                  .Attr<double>("rate"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(gtjax_attention_backward_receivers, BackwardReceivers,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<Floats>()  // q
                                  .Arg<Floats>()  // k
                                  .Arg<Floats>()  // v
                                  .Arg<Ints>()    // offsets
                                  .Arg<Ints>()    // senders
                                  .Arg<Words>()   // edge ids
                                  .Arg<Floats>()  // bias
                                  .Arg<Words>()   // seed
                                  .Arg<Floats>()  // out
                                  .Arg<Floats>()  // lse
                                  .Arg<Floats>()  // dout
                                  .Ret<Floats>()  // dq
                                  .Ret<Floats>()  // delta
                                  .Ret<Floats>()  // dbias
                                  .Attr<double>("rate"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(gtjax_attention_backward_senders, BackwardSenders,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<Floats>()  // q
                                  .Arg<Floats>()  // k
                                  .Arg<Floats>()  // v
                                  .Arg<Ints>()    // offsets
                                  .Arg<Ints>()    // receivers
                                  .Arg<Ints>()    // order
                                  .Arg<Words>()   // edge ids
                                  .Arg<Floats>()  // bias
                                  .Arg<Words>()   // seed
                                  .Arg<Floats>()  // lse
                                  .Arg<Floats>()  // delta
                                  .Arg<Floats>()  // dout
                                  .Ret<Floats>()  // dk
                                  .Ret<Floats>()  // dv
                                  .Attr<double>("rate"));
