// Propagation on the CPU, as XLA calls it: checks what it is given, picks the passes for this
// processor, and runs them on XLA's own thread pool.

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "handlers.h"
#include "propagation.h"

GTJAX_PASSES(gtjax::PropagationPasses, kPropagation)

namespace {

using gtjax::Agree, gtjax::Bind, gtjax::DataOrNull, gtjax::EdgeDataOf, gtjax::Floats;
using gtjax::FloatsOut, gtjax::Fresh, gtjax::Ints, gtjax::kCannot, gtjax::kDisagree, gtjax::PoolOf;
using gtjax::RowsOf, gtjax::TableOf, gtjax::Words, gtjax::ZeroPadding;

// Rows of arrays [edges, heads], which have no width.
gtjax::Rows RowsOfEdges(const Floats& array, const Ints& offsets) {
  return {static_cast<int64_t>(offsets.element_count()) - 1, array.dimensions()[1], 1,
          offsets.typed_data(), nullptr};
}

ffi::Error SoftmaxWeights(ffi::ThreadPool pool, ffi::AnyBuffer q, ffi::AnyBuffer k, Ints offsets,
                          Ints senders, Words ids, Floats bias, Words seed, FloatsOut weights,
                          double rate, std::string_view instructions) {
  const gtjax::PropagationPasses* passes = kPropagationIn(instructions);
  if (!passes) return kCannot;
  if (!Agree({q, k})) return kDisagree;
  const gtjax::Rows rows = RowsOf(q, offsets, senders);
  if (!gtjax::HasSeeds(seed, rows.heads)) return gtjax::kShapes;
  float* fresh = Fresh(weights);
  ZeroPadding(weights, rows, rows.heads);
  passes->softmax_weights({rows, TableOf(q), TableOf(k),
                           EdgeDataOf(DataOrNull(bias), ids, seed, rate, rows.heads), fresh},
                          PoolOf(pool));
  return ffi::Error::Success();
}

ffi::Error SoftmaxGradient(ffi::ThreadPool pool, Floats weights, Floats dweights, Ints offsets,
                           FloatsOut dlogits, double rate, double factor,
                           std::string_view instructions) {
  const gtjax::PropagationPasses* passes = kPropagationIn(instructions);
  if (!passes) return kCannot;
  const gtjax::Rows rows = RowsOfEdges(weights, offsets);
  float* fresh = Fresh(dlogits);
  ZeroPadding(dlogits, rows, rows.heads);
  passes->softmax_gradient({rows, weights.typed_data(), dweights.typed_data(),
                            static_cast<float>(1.0 / (1.0 - rate)), static_cast<float>(factor),
                            fresh},
                           PoolOf(pool));
  return ffi::Error::Success();
}

// Padding keeps its place in every order.
ffi::Error Reorder(ffi::ThreadPool pool, Floats from, Ints order, Ints offsets, FloatsOut to,
                   bool back, std::string_view instructions) {
  const gtjax::PropagationPasses* passes = kPropagationIn(instructions);
  if (!passes) return kCannot;
  const gtjax::Rows rows = RowsOfEdges(from, offsets);
  float* fresh = Fresh(to);
  ZeroPadding(to, rows, rows.heads);
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
