// Attention over edges on the CPU, as XLA calls it: checks what it is given, picks the passes for
// this processor, and runs them on XLA's own thread pool.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "passes.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

// One for each set of instructions that passes.cc was compiled for.
namespace baseline {
extern const gtjax::Passes kPasses;
}
#if defined(GTJAX_X86)
namespace avx2 {
extern const gtjax::Passes kPasses;
}
namespace avx512 {
extern const gtjax::Passes kPasses;
}
#endif

namespace {

using Floats = ffi::Buffer<ffi::F32>;
using Ints = ffi::Buffer<ffi::S32>;
using Words = ffi::Buffer<ffi::U32>;
using FloatsOut = ffi::ResultBuffer<ffi::F32>;

// The passes in the instructions of that name, or in the best that there are; null if this
// processor has not got them.
const gtjax::Passes* PassesIn(std::string_view instructions) {
  const bool any = instructions == "best";
#if defined(GTJAX_X86)
  __builtin_cpu_init();
  if ((any || instructions == "avx512") && __builtin_cpu_supports("avx512f") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512cd")) {
    return &avx512::kPasses;
  }
  if ((any || instructions == "avx2") && __builtin_cpu_supports("avx2") &&
      __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")) {
    return &avx2::kPasses;
  }
#endif
  return any || instructions == "baseline" ? &baseline::kPasses : nullptr;
}

gtjax::Pool PoolOf(ffi::ThreadPool& pool) {
  return {std::max<int64_t>(1, pool.num_threads()),
          [&pool](std::function<void()> task) { pool.Schedule(std::move(task)); }};
}

// Results are fresh memory: in large pages they cost a fraction of the faults.
float* Fresh(FloatsOut& out) {
#if defined(__linux__)
  constexpr uintptr_t kPage = uintptr_t{2} << 20;
  const uintptr_t start = reinterpret_cast<uintptr_t>(out->typed_data());
  const uintptr_t first = (start + kPage - 1) / kPage * kPage;
  const uintptr_t last = (start + out->size_bytes()) / kPage * kPage;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#endif
  return out->typed_data();
}

// Whether arrays are [rows, heads, width] of one type with the same heads and width.
bool Agree(std::initializer_list<ffi::AnyBuffer> tables) {
  const auto first = tables.begin()->dimensions();
  const auto type = tables.begin()->element_type();
  if (type != ffi::F32 && type != ffi::BF16) return false;
  for (const auto& table : tables) {
    const auto shape = table.dimensions();
    if (shape.size() != 3 || shape[1] != first[1] || shape[2] != first[2] || shape[2] == 0 ||
        table.element_type() != type) {
      return false;
    }
  }
  return true;
}

const ffi::Error kDisagree =
    ffi::Error::InvalidArgument("q, k and v are [rows, heads, width] of float32 or bfloat16");
const ffi::Error kCannot = ffi::Error::InvalidArgument("this processor lacks these instructions");

gtjax::Table TableOf(const ffi::AnyBuffer& array) {
  return {array.untyped_data(), array.element_type() == ffi::BF16};
}

gtjax::Rows RowsOf(const ffi::AnyBuffer& table, const Ints& offsets, const Ints& columns) {
  return {static_cast<int64_t>(offsets.element_count()) - 1, table.dimensions()[1],
          table.dimensions()[2], offsets.typed_data(), columns.typed_data()};
}

uint32_t Scramble(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7FEB352Du;
  x = (x ^ (x >> 15)) * 0x846CA68Bu;
  return x ^ (x >> 16);
}

gtjax::EdgeData EdgeDataOf(const Floats& bias, const Words& ids, const Words& seed, double rate,
                           int64_t heads) {
  gtjax::EdgeData data{bias.element_count() ? bias.typed_data() : nullptr, ids.typed_data(),
                       nullptr, {}, 0, 1.0f};
  if (rate <= 0) return data;
  data.threshold = static_cast<uint32_t>(std::min(rate * 4294967296.0, 4294967295.0));
  data.kept = static_cast<float>(1.0 / (1.0 - rate));
  for (int64_t h = 0; h < (heads + 7) / 8 * 8; ++h) {
    const uint32_t head = static_cast<uint32_t>(h) * 0x9E3779B9u;
    data.draws.push_back(Scramble(head + seed.typed_data()[0]));
  }
  return data;
}

// The partial of every row.
ffi::Error Forward(ffi::ThreadPool pool, ffi::AnyBuffer q, ffi::AnyBuffer k, ffi::AnyBuffer v,
                   Ints offsets, Ints senders, Words ids, Floats bias, Words seed, FloatsOut max,
                   FloatsOut sum, FloatsOut acc, double rate, std::string_view instructions) {
  const gtjax::Passes* passes = PassesIn(instructions);
  if (!passes) return kCannot;
  if (!Agree({q, k, v})) return kDisagree;
  const gtjax::Rows rows = RowsOf(q, offsets, senders);
  passes->forward({rows, TableOf(q), TableOf(k), TableOf(v),
                    EdgeDataOf(bias, ids, seed, rate, rows.heads), false, Fresh(acc),
                    max->typed_data(), sum->typed_data()},
                   PoolOf(pool));
  return ffi::Error::Success();
}

// The finished output and its lse: what is left of the partial when there is nothing to merge.
ffi::Error Attention(ffi::ThreadPool pool, ffi::AnyBuffer q, ffi::AnyBuffer k, ffi::AnyBuffer v,
                     Ints offsets, Ints senders, Words ids, Floats bias, Words seed,
                     FloatsOut out, FloatsOut lse, double rate, std::string_view instructions) {
  const gtjax::Passes* passes = PassesIn(instructions);
  if (!passes) return kCannot;
  if (!Agree({q, k, v})) return kDisagree;
  const gtjax::Rows rows = RowsOf(q, offsets, senders);
  passes->forward({rows, TableOf(q), TableOf(k), TableOf(v),
                    EdgeDataOf(bias, ids, seed, rate, rows.heads), true, Fresh(out),
                    lse->typed_data(), nullptr},
                   PoolOf(pool));
  return ffi::Error::Success();
}

ffi::Error BackwardReceivers(ffi::ThreadPool pool, ffi::AnyBuffer q, ffi::AnyBuffer k,
                             ffi::AnyBuffer v, ffi::AnyBuffer dout, Ints offsets, Ints senders,
                             Words ids, Floats bias, Words seed, Floats out, Floats lse,
                             FloatsOut dq, FloatsOut stats, FloatsOut dbias, double rate, std::string_view instructions) {
  const gtjax::Passes* passes = PassesIn(instructions);
  if (!passes) return kCannot;
  if (!Agree({q, k, v, dout})) return kDisagree;
  const gtjax::Rows rows = RowsOf(q, offsets, senders);
  // Edges after those of the last row are padding, which no pass comes by.
  float* dbias_end = dbias->typed_data() + dbias->element_count();
  std::fill(std::min(dbias->typed_data() + rows.offsets[rows.rows] * rows.heads, dbias_end),
            dbias_end, 0.0f);
  passes->backward_receivers(
      {rows, TableOf(q), TableOf(k), TableOf(v), TableOf(dout),
       EdgeDataOf(bias, ids, seed, rate, rows.heads), out.typed_data(), lse.typed_data(),
       Fresh(dq), stats->typed_data(), bias.element_count() ? dbias->typed_data() : nullptr},
      PoolOf(pool));
  return ffi::Error::Success();
}

// Offsets and receivers are of the edges sorted by sender; `order` has their positions in
// receiver order.
ffi::Error BackwardSenders(ffi::ThreadPool pool, ffi::AnyBuffer q, ffi::AnyBuffer k,
                           ffi::AnyBuffer v, ffi::AnyBuffer dout, Ints offsets, Ints receivers,
                           Ints order, Words ids, Floats bias, Words seed, Floats stats,
                           FloatsOut dk, FloatsOut dv, double rate, std::string_view instructions) {
  const gtjax::Passes* passes = PassesIn(instructions);
  if (!passes) return kCannot;
  if (!Agree({q, k, v, dout})) return kDisagree;
  const gtjax::Rows rows = RowsOf(k, offsets, receivers);
  gtjax::EdgeData edges = EdgeDataOf(bias, ids, seed, rate, rows.heads);
  if (edges.bias || !edges.draws.empty()) edges.order = order.typed_data();
  passes->backward_senders({rows, TableOf(q), TableOf(k), TableOf(v), TableOf(dout), edges,
                             stats.typed_data(), Fresh(dk), Fresh(dv)},
                            PoolOf(pool));
  return ffi::Error::Success();
}

ffi::Error Gather(ffi::ThreadPool pool, ffi::AnyBuffer k, ffi::AnyBuffer v, Ints offsets,
                  Ints senders, FloatsOut sums) {
  if (!Agree({k, v})) return kDisagree;
  PassesIn("best")->gather({RowsOf(k, offsets, senders), TableOf(k), TableOf(v), sums->typed_data()},
                  PoolOf(pool));
  return ffi::Error::Success();
}

auto Bind() { return ffi::Ffi::Bind().Ctx<ffi::ThreadPool>(); }

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(gtjax_attention_partial, Forward,
                              Bind()
                                  .Arg<ffi::AnyBuffer>()  // q
                                  .Arg<ffi::AnyBuffer>()  // k
                                  .Arg<ffi::AnyBuffer>()  // v
                                  .Arg<Ints>()            // offsets
                                  .Arg<Ints>()            // senders
                                  .Arg<Words>()           // ids
                                  .Arg<Floats>()          // bias
                                  .Arg<Words>()           // seed
                                  .Ret<Floats>()          // max
                                  .Ret<Floats>()          // sum
                                  .Ret<Floats>()          // acc
                                  .Attr<double>("rate")
                                  .Attr<std::string_view>("instructions"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(gtjax_attention, Attention,
                              Bind()
                                  .Arg<ffi::AnyBuffer>()  // q
                                  .Arg<ffi::AnyBuffer>()  // k
                                  .Arg<ffi::AnyBuffer>()  // v
                                  .Arg<Ints>()            // offsets
                                  .Arg<Ints>()            // senders
                                  .Arg<Words>()           // ids
                                  .Arg<Floats>()          // bias
                                  .Arg<Words>()           // seed
                                  .Ret<Floats>()          // out
                                  .Ret<Floats>()          // lse
                                  .Attr<double>("rate")
                                  .Attr<std::string_view>("instructions"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(gtjax_attention_backward_receivers, BackwardReceivers,
                              Bind()
                                  .Arg<ffi::AnyBuffer>()  // q
                                  .Arg<ffi::AnyBuffer>()  // k
                                  .Arg<ffi::AnyBuffer>()  // v
                                  .Arg<ffi::AnyBuffer>()  // dout
                                  .Arg<Ints>()            // offsets
                                  .Arg<Ints>()            // senders
                                  .Arg<Words>()           // ids
                                  .Arg<Floats>()          // bias
                                  .Arg<Words>()           // seed
                                  .Arg<Floats>()          // out
                                  .Arg<Floats>()          // lse
                                  .Ret<Floats>()          // dq
                                  .Ret<Floats>()          // stats
                                  .Ret<Floats>()          // dbias
                                  .Attr<double>("rate")
                                  .Attr<std::string_view>("instructions"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(gtjax_attention_backward_senders, BackwardSenders,
                              Bind()
                                  .Arg<ffi::AnyBuffer>()  // q
                                  .Arg<ffi::AnyBuffer>()  // k
                                  .Arg<ffi::AnyBuffer>()  // v
                                  .Arg<ffi::AnyBuffer>()  // dout
                                  .Arg<Ints>()            // offsets
                                  .Arg<Ints>()            // receivers
                                  .Arg<Ints>()            // order
                                  .Arg<Words>()           // ids
                                  .Arg<Floats>()          // bias
                                  .Arg<Words>()           // seed
                                  .Arg<Floats>()          // stats
                                  .Ret<Floats>()          // dk
                                  .Ret<Floats>()          // dv
                                  .Attr<double>("rate")
                                  .Attr<std::string_view>("instructions"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(gtjax_gather, Gather,
                              Bind()
                                  .Arg<ffi::AnyBuffer>()  // k
                                  .Arg<ffi::AnyBuffer>()  // v
                                  .Arg<Ints>()            // offsets
                                  .Arg<Ints>()            // senders
                                  .Ret<Floats>());        // sums
