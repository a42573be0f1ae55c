// Attention over edges on the CPU, as XLA calls it: checks what it is given, picks the passes for
// this processor, and runs them on XLA's own thread pool.

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "handlers.h"
#include "passes.h"

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

using gtjax::Agree, gtjax::Bind, gtjax::EdgeDataOf, gtjax::Floats, gtjax::FloatsOut, gtjax::Fresh;
using gtjax::Ints, gtjax::kCannot, gtjax::kDisagree, gtjax::PoolOf, gtjax::RowsOf, gtjax::TableOf;
using gtjax::Words;

// The passes in the instructions of that name; null if this processor has not got them.
const gtjax::Passes* PassesIn(std::string_view instructions) {
  switch (gtjax::Instructions(instructions)) {
#if defined(GTJAX_X86)
    case 2: return &avx512::kPasses;
    case 1: return &avx2::kPasses;
#endif
    case 0: return &baseline::kPasses;
    default: return nullptr;
  }
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
