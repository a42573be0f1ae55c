// Propagation on the CPU, as XLA calls it: checks what it is given, picks the passes for this
// processor, and runs them on XLA's own thread pool.

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "handlers.h"
#include "propagation.h"

// One for each set of instructions that propagation.cc was compiled for.
namespace baseline {
extern const gtjax::PropagationPasses kPropagation;
}
#if defined(GTJAX_X86)
namespace avx2 {
extern const gtjax::PropagationPasses kPropagation;
}
namespace avx512 {
extern const gtjax::PropagationPasses kPropagation;
}
#endif

namespace {

using gtjax::Agree, gtjax::Bind, gtjax::EdgeDataOf, gtjax::Floats, gtjax::FloatsOut, gtjax::Fresh;
using gtjax::Ints, gtjax::kCannot, gtjax::kDisagree, gtjax::PoolOf, gtjax::RowsOf, gtjax::TableOf;
using gtjax::Words;

const gtjax::PropagationPasses* PassesIn(std::string_view instructions) {
  switch (gtjax::Instructions(instructions)) {
#if defined(GTJAX_X86)
    case 2: return &avx512::kPropagation;
    case 1: return &avx2::kPropagation;
#endif
    case 0: return &baseline::kPropagation;
    default: return nullptr;
  }
}

// Rows of arrays [edges, heads], which have no width.
gtjax::Rows RowsOfEdges(const Floats& array, const Ints& offsets) {
  return {static_cast<int64_t>(offsets.element_count()) - 1, array.dimensions()[1], 1,
          offsets.typed_data(), nullptr};
}

// Edges after those of the last row are padding, which no pass comes by.
void ZeroPadding(FloatsOut& array, const gtjax::Rows& rows) {
  float* end = array->typed_data() + array->element_count();
  std::fill(std::min(array->typed_data() + rows.offsets[rows.rows] * rows.heads, end), end, 0.0f);
}

ffi::Error SoftmaxWeights(ffi::ThreadPool pool, ffi::AnyBuffer q, ffi::AnyBuffer k, Ints offsets,
                          Ints senders, Words ids, Floats bias, Words seed, FloatsOut weights,
                          double rate, std::string_view instructions) {
  const gtjax::PropagationPasses* passes = PassesIn(instructions);
  if (!passes) return kCannot;
  if (!Agree({q, k})) return kDisagree;
  const gtjax::Rows rows = RowsOf(q, offsets, senders);
  float* fresh = Fresh(weights);
  ZeroPadding(weights, rows);
  passes->softmax_weights({rows, TableOf(q), TableOf(k),
                           EdgeDataOf(bias, ids, seed, rate, rows.heads), fresh},
                          PoolOf(pool));
  return ffi::Error::Success();
}

// `start` may have no rows: then nothing is added.
ffi::Error WeightedSum(ffi::ThreadPool pool, Floats weights, ffi::AnyBuffer x, Ints offsets,
                       Ints columns, Floats start, FloatsOut out, double factor, double restart,
                       std::string_view instructions) {
  const gtjax::PropagationPasses* passes = PassesIn(instructions);
  if (!passes) return kCannot;
  if (!Agree({x})) return kDisagree;
  passes->weighted_sum({RowsOf(x, offsets, columns), weights.typed_data(), TableOf(x),
                        start.element_count() ? start.typed_data() : nullptr,
                        static_cast<float>(factor), static_cast<float>(restart), Fresh(out)},
                       PoolOf(pool));
  return ffi::Error::Success();
}

// `before` is the memory of `dots`.
ffi::Error WeightedSumAndDots(ffi::ThreadPool pool, Floats before, Floats weights, ffi::AnyBuffer x,
                              ffi::AnyBuffer y, Ints offsets, Ints columns, FloatsOut dots,
                              FloatsOut out, double factor, std::string_view instructions) {
  const gtjax::PropagationPasses* passes = PassesIn(instructions);
  if (!passes) return kCannot;
  if (!Agree({x, y})) return kDisagree;
  if (before.typed_data() != dots->typed_data()) {
    return ffi::Error::InvalidArgument("what dots are added to is their own memory");
  }
  passes->weighted_sum_and_dots({RowsOf(x, offsets, columns), weights.typed_data(), TableOf(x),
                                 TableOf(y), static_cast<float>(factor), Fresh(out),
                                 dots->typed_data()},
                                PoolOf(pool));
  return ffi::Error::Success();
}

ffi::Error SoftmaxGradient(ffi::ThreadPool pool, Floats weights, Floats dweights, Ints offsets,
                           FloatsOut dlogits, double rate, double factor,
                           std::string_view instructions) {
  const gtjax::PropagationPasses* passes = PassesIn(instructions);
  if (!passes) return kCannot;
  const gtjax::Rows rows = RowsOfEdges(weights, offsets);
  float* fresh = Fresh(dlogits);
  ZeroPadding(dlogits, rows);
  passes->softmax_gradient({rows, weights.typed_data(), dweights.typed_data(),
                            static_cast<float>(1.0 / (1.0 - rate)), static_cast<float>(factor),
                            fresh},
                           PoolOf(pool));
  return ffi::Error::Success();
}

// Padding keeps its place in every order.
ffi::Error Reorder(ffi::ThreadPool pool, Floats from, Ints order, Ints offsets, FloatsOut to,
                   bool back, std::string_view instructions) {
  const gtjax::PropagationPasses* passes = PassesIn(instructions);
  if (!passes) return kCannot;
  const gtjax::Rows rows = RowsOfEdges(from, offsets);
  float* fresh = Fresh(to);
  ZeroPadding(to, rows);
  passes->reorder({rows, order.typed_data(), from.typed_data(), back, fresh}, PoolOf(pool));
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(gtjax_softmax_weights, SoftmaxWeights,
                              Bind()
                                  .Arg<ffi::AnyBuffer>()  // q
                                  .Arg<ffi::AnyBuffer>()  // k
                                  .Arg<Ints>()            // offsets
                                  .Arg<Ints>()            // senders
                                  .Arg<Words>()           // ids
                                  .Arg<Floats>()          // bias
                                  .Arg<Words>()           // seed
                                  .Ret<Floats>()          // weights
                                  .Attr<double>("rate")
                                  .Attr<std::string_view>("instructions"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(gtjax_weighted_sum, WeightedSum,
                              Bind()
                                  .Arg<Floats>()          // weights
                                  .Arg<ffi::AnyBuffer>()  // x
                                  .Arg<Ints>()            // offsets
                                  .Arg<Ints>()            // columns
                                  .Arg<Floats>()          // start
                                  .Ret<Floats>()          // out
                                  .Attr<double>("factor")
                                  .Attr<double>("restart")
                                  .Attr<std::string_view>("instructions"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(gtjax_weighted_sum_and_dots, WeightedSumAndDots,
                              Bind()
                                  .Arg<Floats>()          // before
                                  .Arg<Floats>()          // weights
                                  .Arg<ffi::AnyBuffer>()  // x
                                  .Arg<ffi::AnyBuffer>()  // y
                                  .Arg<Ints>()            // offsets
                                  .Arg<Ints>()            // columns
                                  .Ret<Floats>()          // dots
                                  .Ret<Floats>()          // out
                                  .Attr<double>("factor")
                                  .Attr<std::string_view>("instructions"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(gtjax_softmax_gradient, SoftmaxGradient,
                              Bind()
                                  .Arg<Floats>()  // weights
                                  .Arg<Floats>()  // dweights
                                  .Arg<Ints>()    // offsets
                                  .Ret<Floats>()  // dlogits
                                  .Attr<double>("rate")
                                  .Attr<double>("factor")
                                  .Attr<std::string_view>("instructions"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(gtjax_reorder, Reorder,
                              Bind()
                                  .Arg<Floats>()  // from
                                  .Arg<Ints>()    // order
                                  .Arg<Ints>()    // offsets
                                  .Ret<Floats>()  // to
                                  .Attr<bool>("back")
                                  .Attr<std::string_view>("instructions"));
